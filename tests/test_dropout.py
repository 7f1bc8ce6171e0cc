"""Masks of a network's own dropout in predictions: their law, a loop written out, and what they leave alone."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent import families, likelihoods, predict
from credent.dropout import dropping
from credent.errors import BudgetError, InputError
from credent.families import Draws, Mixture
from credent.layout import Layout
from credent.tail import Tail

RATE = 0.3


def dropped(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(RATE), nn.Linear(8, 2)).double()


def inputs(n=7):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def point(net):
    return families.Dirac().bind(Layout(net))


def test_the_moments_are_those_of_the_masks():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Dropout(RATE), nn.Linear(4, 1)).double()
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
    n = 20_000
    pred = predict(net, point(net), likelihoods.Gaussian(scale=1.0), x.repeat(n, 1), samples=2, dropout=True)
    weight, bias = net[1].weight[0].detach(), net[1].bias.detach()
    variance = float(((weight * x[0]) ** 2).sum() * RATE / (1 - RATE))
    assert abs(pred.mean.mean() - (weight @ x[0] + bias)) < 4 * math.sqrt(variance / (2 * n))
    # of two passes with variance v about their own mean (correction 0), v / 2 is left
    spread = pred.epistemic.square()
    assert abs(spread.mean() - variance / 2) < 4 * spread.std() / math.sqrt(n)
    assert abs(pred.mean.var() - variance / 2) < 4 * (pred.mean - pred.mean.mean()).square().std() / math.sqrt(n)


def test_it_is_a_loop_in_training_mode_of_the_dropout_alone():
    net, x = dropped(), inputs()
    pred = predict(net, point(net), likelihoods.Categorical(), x, samples=6, seed=3, dropout=True)
    passes = []
    with dropping(net.eval(), seed=3), torch.no_grad():
        for _ in range(6):
            hidden = net[1](net[0](x))
            mask = net[2](torch.ones_like(hidden))
            assert set(mask.unique().tolist()) <= {0.0, 1 / (1 - RATE)}
            passes.append(net[3](hidden * mask).softmax(-1))
    assert torch.allclose(pred.probs, torch.stack(passes).mean(0), rtol=1e-12)
    assert pred.num_draws == 6
    assert torch.stack(passes).std(0).min() > 1e-3


def test_weights_and_masks_are_drawn_together():
    net, x = dropped(), inputs()
    q = families.Gaussian(initial_scale=0.4).bind(Layout(net))
    pred = predict(net, q, likelihoods.Categorical(), x, samples=4, seed=3, dropout=True)
    passes = []
    with dropping(net.eval(), seed=3), torch.no_grad():
        for params in q.draws(4, seed=3):
            passes.append(torch.func.functional_call(net, params, x).softmax(-1))
    assert torch.allclose(pred.probs, torch.stack(passes).mean(0), rtol=1e-12)


@pytest.mark.parametrize("other", [0, 2**19, 2**20, 5 * 2**20, 2**31])
def test_masks_do_not_follow_the_noise_of_weights(other):
    """Seeds of a prediction's draws, of its second turn, of members of a mixture and of a recipe's sampler."""
    numbers = torch.rand(10_000, generator=torch.Generator().manual_seed(other))
    layer = nn.Dropout(0.5).eval()
    with dropping(layer, seed=0):
        masks = layer(torch.ones(10_000))
    assert abs(torch.corrcoef(torch.stack([numbers, masks]))[0, 1]) < 4 / 100


def test_dropout_in_place_leaves_inputs_alone():
    found = []
    for inplace in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Dropout(RATE, inplace=inplace), nn.Linear(3, 2)).double()
        x = inputs()
        found.append(predict(net, point(net), likelihoods.Gaussian(scale=1.0), x, samples=8, dropout=True).means)
        assert torch.equal(x, inputs())
        assert net[1].inplace is inplace
    assert torch.equal(*found)


def test_last_layers_at_many_draws_have_masks_before_them(monkeypatch):
    """What lies before the only random layer is run at each draw, since its masks differ."""
    net, x = dropped(), inputs()
    bnn = cr.VI(net, likelihoods.Categorical(), num_data=10, random="3.*")
    monkeypatch.setattr(Tail, "meet", lambda *_: pytest.fail("the tail alone has no masks"))
    pred = bnn.predict(x, samples=8, seed=1, dropout=True)
    passes = []
    with dropping(net.eval(), seed=1), torch.no_grad():
        for params in bnn.posterior.draws(8, seed=1):
            passes.append(torch.func.functional_call(net, params, x).softmax(-1))
    assert torch.allclose(pred.probs, torch.stack(passes).mean(0), rtol=1e-12)


def test_points_are_shared_out_evenly_among_masks():
    nets, x = [dropped(0), dropped(1)], inputs()
    mixture = Mixture([point(net) for net in nets])
    pred = predict(nets[0], mixture, likelihoods.Categorical(), x, samples=6, seed=2, dropout=True)
    passes = []
    with dropping(nets[0].eval(), seed=2), torch.no_grad():
        for k in (0, 1, 0, 1, 0, 1):
            passes.append(torch.func.functional_call(nets[0], dict(nets[k].named_parameters()), x).softmax(-1))
    assert torch.allclose(pred.probs, torch.stack(passes).mean(0), rtol=1e-12)
    assert pred.num_draws == 6


@pytest.mark.parametrize(("samples", "count"), [(7, 9), (6, 6), (2, 2), (None, 3)])
def test_draws_are_used_equally_often(samples, count):
    net = nn.Sequential(nn.Dropout(1e-9), nn.Linear(1, 1, bias=False)).double()
    draws = Draws([{"1.weight": torch.full((1, 1), w).double()} for w in (0.0, 1.0, 5.0)])
    x = torch.ones(1, 1).double()
    pred = predict(net, draws, likelihoods.Gaussian(scale=1.0), x, samples=samples, dropout=True)
    assert pred.num_draws == count
    if count >= 3:
        assert pred.mean.item() == pytest.approx(2.0, rel=1e-6)


def test_one_set_of_weights_wants_a_number_of_masks():
    net = dropped()
    for how in ("sampled", "mean"):
        with pytest.raises(InputError, match="how many masks: samples=32"):
            predict(net, point(net), likelihoods.Categorical(), inputs(), samples=None, how=how, dropout=True)


def test_a_posterior_without_draws_ends():
    class Nothing(Draws):
        def draws(self, n=None, seed=None):
            yield from ()

    net = dropped()
    empty = Nothing([{"3.bias": torch.zeros(2).double()}])
    with pytest.raises(InputError, match="no draws"):
        predict(net, empty, likelihoods.Categorical(), inputs(), samples=3, dropout=True)


def test_further_turns_at_a_mixture_have_other_noise(monkeypatch):
    """A point beside a Gaussian: the Gaussian's part of the second turn is not that of the first."""
    nets = [dropped(0), dropped(1)]
    gaussian = families.Gaussian(initial_scale=0.4).bind(Layout(nets[1]))
    mixture = Mixture([point(nets[0]), gaussian])
    seen, draws = [], mixture.draws

    def watched(n, seed):
        for params in draws(n, seed):
            seen.append(tuple(params["3.bias"].tolist()))
            yield params

    monkeypatch.setattr(mixture, "draws", watched)
    predict(nets[0], mixture, likelihoods.Categorical(), inputs(), samples=8, dropout=True)
    assert len(seen) == 10
    assert len(set(seen)) == 9  # the point twice


def test_what_is_held_is_said_before():
    net = dropped()
    options = {"samples": 5, "how": "mean", "dropout": True, "max_bytes": 7 * 2 * 8 * 4}
    with pytest.raises(BudgetError, match="5 draws"):
        predict(net, point(net), likelihoods.Gaussian(scale=1.0), inputs(), **options)


def test_the_tangent_has_the_masks_of_its_pass():
    net, x = dropped(), inputs()
    q = families.Gaussian(initial_scale=1e-3).bind(Layout(net))
    noise, options = likelihoods.Gaussian(scale=1.0), {"samples": 6, "seed": 2, "dropout": True}
    tangent, drawn = (predict(net, q, noise, x, how=how, **options).means for how in ("linearised", "sampled"))
    assert (tangent - drawn).abs().max() < 1e-4  # of second order in the scale
    assert drawn.std(0).mean() > 0.1


def test_statistics_are_estimated_under_masks():
    net = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1), nn.Linear(1, 1)).double()
    with torch.no_grad():
        net[2].weight.fill_(1.0)
        net[2].bias.zero_()
    x = torch.ones(4000, 1).double()
    options = {"samples": 1, "dropout": True, "statistics": [x], "batch_size": 4000}
    pred = predict(net, point(net), likelihoods.Gaussian(scale=1.0), x, **options)
    assert {round(abs(v), 1) for v in pred.mean[:, 0].tolist()} == {1.0}  # (0 - 1) / 1 and (2 - 1) / 1


def test_variational_laplace_does_not_blame_its_scales_for_masks(recwarn):
    bnn = cr.VL(dropped(), likelihoods.Categorical(), num_data=10)
    with torch.no_grad():
        for group in bnn.param_groups(lr=1.0):
            if group["name"] == "scales":
                for p in group["params"]:
                    p.fill_(-12.0)
    bnn.predict(inputs(), samples=8, how="sampled", dropout=True)
    assert not [w for w in recwarn if "disagree" in str(w.message)]


def test_the_mean_network_has_masks_too():
    net, x = dropped(), inputs()
    q = families.Gaussian(initial_scale=0.4).bind(Layout(net))
    mean = predict(net, q, likelihoods.Categorical(), x, samples=6, how="mean", dropout=True)
    assert torch.allclose(
        mean.probs, predict(net, point(net), likelihoods.Categorical(), x, samples=6, dropout=True).probs
    )


def test_a_seed_gives_the_same_masks_and_leaves_torchs_stream_alone():
    net, x = dropped(), inputs()
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    one, two, other = (
        predict(net, point(net), likelihoods.Categorical(), x, samples=4, seed=seed, dropout=True).probs
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(torch.rand(3), expected)


def test_no_seed_gives_fresh_masks():
    net, x = dropped(), inputs()
    one, two = (predict(net, point(net), likelihoods.Categorical(), x, seed=None, dropout=True).probs for _ in range(2))
    assert not torch.equal(one, two)


def test_batch_norm_keeps_its_running_statistics():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(RATE)).double()
    net[0].running_mean.fill_(2.0)
    x = inputs(400)
    drawn = predict(net, point(net), likelihoods.Gaussian(scale=1.0), x, samples=1, dropout=True).mean
    kept = drawn != 0
    assert torch.allclose(drawn[kept], ((x - 2.0) / math.sqrt(1 + 1e-5) / (1 - RATE))[kept])
    assert torch.equal(net[0].running_mean, torch.full((3,), 2.0, dtype=torch.float64))
    assert net.training
    assert net[0].training


def test_modes_and_streams_come_back_when_it_fails():
    net = dropped().eval()
    state, fused = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError):
        predict(net, point(net), likelihoods.Categorical(), torch.zeros(2, 4).double(), dropout=True)
    assert not any(m.training for m in net.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.mha.get_fastpath_enabled() is fused


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.layer(x[:, None].expand(-1, 2, -1))[0][:, -1]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(3, 1, dropout=0.5, batch_first=True)

    def forward(self, x):
        sequence = torch.stack([x, 2 * x, -x], 1)
        return self.layer(sequence, sequence, sequence)[0][:, 0]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.layer(torch.cat([x, x[:, :1]], 1)[:, None])[:, 0]


@pytest.mark.parametrize("kind", [Recurrent, Attention, Encoder])
def test_layers_with_a_rate_of_their_own_drop(kind):
    torch.manual_seed(0)
    net = kind()
    x = inputs().float()
    spread = predict(net, point(net), likelihoods.Gaussian(scale=1.0), x, samples=8, dropout=True).epistemic
    still = predict(net, point(net), likelihoods.Gaussian(scale=1.0), x, samples=8).epistemic
    assert spread.mean() > 1e-3
    assert still.max() == 0


class Reading(nn.Module):
    """Attention that reads a layer's rate, and drops by itself in training."""

    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.last = nn.Dropout(RATE), nn.Dropout(RATE), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(nn.functional.dropout(self.first(x), self.dropout.p, self.training))


def test_layers_that_are_read_and_not_run_are_warned_of():
    net = Reading().double()
    with pytest.warns(UserWarning, match="dropout did not run"):
        predict(net, point(net), likelihoods.Categorical(), inputs(), samples=2, dropout=True)
    assert not net.dropout._forward_pre_hooks


def test_a_rate_is_no_answer():
    net = dropped()
    with pytest.raises(InputError, match="at their own rates"):
        predict(net, point(net), likelihoods.Categorical(), inputs(), dropout=0.5)


class Alone(Recurrent):
    """Torch drops between recurrent layers, and warns that there is nothing between one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(3, 2, batch_first=True)
        self.layer.dropout = 0.5


@pytest.mark.parametrize("net", [nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.0)), Alone()])
def test_a_network_that_does_not_drop_is_told(net):
    net = net.double()
    with pytest.raises(InputError, match=r"no layer that drops: train it with nn.Dropout\(p\)"):
        predict(net, point(net), likelihoods.Categorical(), inputs(), dropout=True)


def test_calibration_takes_the_masks_in():
    """The temperature is that of the averaged prediction with masks: a search over a grid finds the same."""
    net, x = dropped(), inputs(200)
    y = likelihoods.Categorical().draw(net.eval()(x) / 2, torch.Generator().manual_seed(0))
    bnn = cr.MAP(net, likelihoods.Categorical(), num_data=10)
    found = bnn.calibrate(x, y, samples=8, seed=4, dropout=True)
    grid = torch.linspace(0.97, 1.03, 7, dtype=torch.float64) * found
    scores = []
    for temperature in grid:
        bnn.likelihood.temperature.fill_(temperature)
        scores.append(bnn.predict(x, samples=8, seed=4, dropout=True).log_prob(y).mean())
    assert int(torch.stack(scores).argmax()) == 3
