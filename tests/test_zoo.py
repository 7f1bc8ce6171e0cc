"""Networks of every kind through the same tests: whatever holds parameters can be made Bayesian as it is."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from credent import MAP, VI, families, likelihoods, priors
from credent.network import Network


class Rnn(nn.Module):
    """A recurrent layer, read at its last step: likelihoods need one tensor."""

    def __init__(self, kind, width, **options):
        super().__init__()
        self.rnn, self.head = kind(3, 4, batch_first=True, **options), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class TiedWeights(nn.Module):
    """A language model's shape: one matrix embeds the symbols and scores them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.decoder = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7)
        self.decoder.weight = self.embedding.weight

    def forward(self, x):
        return self.decoder(self.body(self.embedding(x)).tanh())


class TiedModule(nn.Module):
    """One layer under two names, used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = self.first
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).tanh())


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(7, 4, mode="sum"), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.bag(x))


class BackboneAndHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh())
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.mix = nn.Linear(3, 4), nn.Linear(2, 4), nn.Bilinear(4, 4, 2)

    def forward(self, left, right):
        return self.mix(self.left(left).tanh(), self.right(right).tanh())


class OwnParameters(nn.Module):
    """Parameters outside any layer: a scalar, a list, a dictionary."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.steps = nn.ParameterList([torch.randn(3, 3), torch.randn(3, 3)])
        self.ends = nn.ParameterDict({"out": nn.Parameter(torch.randn(2, 3))})

    def forward(self, x):
        for step in self.steps:
            x = (x @ step).tanh()
        return nn.functional.linear(x, self.ends["out"]) * self.temperature


def frozen_backbone():
    net = BackboneAndHead()
    net.backbone.requires_grad_(False)
    return net


def gpt2():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(
        vocab_size=13, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def vit():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, image_size=8, patch_size=4,
        num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def conv(*layers, width):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 2))


def normal(*shape):
    return lambda: torch.randn(5, *shape, dtype=torch.float64)


def symbols(high, length):
    return lambda: torch.randint(high, (5, length))


# name: the network, five inputs for it, and which parameters are random
ZOO = {
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), normal(3), None),
    "batch norm": (
        lambda: conv(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), width=4 * 4 * 4),
        normal(2, 6, 6),
        None,
    ),
    "grouped": (lambda: conv(nn.Conv2d(4, 6, 3, groups=2), nn.Tanh(), width=6 * 3 * 3), normal(4, 5, 5), None),
    "transposed": (
        lambda: conv(nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), nn.Tanh(), width=6 * 6 * 6),
        normal(4, 3, 3),
        None,
    ),
    "non-square": (
        lambda: conv(nn.Conv2d(2, 3, (1, 3), stride=(2, 1), dilation=(1, 2)), nn.Tanh(), width=3 * 2 * 3),
        normal(2, 4, 7),
        None,
    ),
    "circular": (
        lambda: conv(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh(), width=15),
        normal(2, 5),
        None,
    ),
    "reflect": (
        lambda: conv(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh(), width=3 * 16),
        normal(2, 4, 4),
        None,
    ),
    "conv3d": (lambda: conv(nn.Conv3d(1, 2, 2), nn.Tanh(), width=16), normal(1, 3, 3, 3), None),
    "lstm": (lambda: Rnn(nn.LSTM, 4, num_layers=2), normal(6, 3), None),
    "gru": (lambda: Rnn(nn.GRU, 8, bidirectional=True), normal(6, 3), None),
    "transformer": (Attention, normal(4, 8), None),
    "tied weights": (TiedWeights, symbols(7, 3), None),
    "tied module": (TiedModule, normal(3), None),
    "weight norm": (
        lambda: nn.Sequential(
            parametrizations.weight_norm(nn.Conv1d(2, 3, 2)),
            nn.Flatten(),
            parametrizations.weight_norm(nn.Linear(9, 2)),
        ),
        normal(2, 4),
        None,
    ),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)),
        normal(3),
        None,
    ),
    "embedding bag": (Bag, symbols(7, 3), None),
    "frozen backbone": (frozen_backbone, normal(3), None),
    "random head": (BackboneAndHead, normal(3), "head.*"),
    "instance norm": (
        lambda: conv(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True, track_running_stats=True), width=12),
        normal(2, 5),
        None,
    ),
    "group, layer norm": (
        lambda: conv(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.PReLU(4), width=16),
        normal(2, 5),
        None,
    ),
    "two inputs": (TwoInputs, lambda: (normal(3)(), normal(2)()), None),
    "keywords": (TwoInputs, lambda: {"right": normal(2)(), "left": normal(3)()}, None),
    "own parameters": (OwnParameters, normal(3), None),
    "gpt2": (gpt2, symbols(13, 4), None),
    "vit": (vit, normal(3, 8, 8), None),
}

NOISE = 0.5
NORMS = ("BatchNorm1d", "BatchNorm2d", "InstanceNorm1d", "GroupNorm", "LayerNorm")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
POWER = (".0._u", ".0._v")  # a spectral norm's power iteration moves these whenever it runs in training mode


@pytest.fixture(params=ZOO, ids=lambda name: name.replace(" ", "-"))
def case(request):
    """A network in float64 with parameters away from every default, its inputs, targets and random parameters."""
    build, inputs, random = ZOO[request.param]
    torch.manual_seed(7)
    net, x = build().double().train(), inputs()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn_like(p))
    y = torch.randn_like(Network(copy.deepcopy(net)).mean(x))
    return net, x, y, random


def vi(case, initial_scale=0.3, samples=1):
    net, _, _, random = case
    q = families.Gaussian(initial_scale)
    prior = priors.Gaussian(scale=0.7)
    return VI(net, likelihoods.Gaussian(NOISE), prior, num_data=50, family=q, samples=samples, random=random)


def run(net, x):
    out = net(**x) if isinstance(x, dict) else net(*x) if isinstance(x, tuple) else net(x)
    return out if isinstance(out, torch.Tensor) else out.logits


def loaded(net, params):
    """The same network, with these parameters for its own."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(params.get(name, p))
    return net


def random_names(net, random):
    return [k for k, p in net.named_parameters() if p.requires_grad and (random is None or k.startswith("head."))]


def elsewhere(net, random):
    return {k: p.detach() + torch.randn_like(p) for k, p in net.named_parameters() if k in random_names(net, random)}


def snapshot(net):
    return {k: v.clone() for k, v in net.state_dict().items()}, list(net.parameters()), list(net.buffers())


def assert_untouched(net, before, changing=()):
    values, parameters, buffers = before
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert all(a is b for a, b in zip(net.buffers(), buffers, strict=True))
    for k, v in net.state_dict().items():
        assert k.endswith(tuple(changing)) or torch.equal(v, values[k]), k


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])  # without gradients, transformers take their fused path
def test_a_call_is_the_network_with_those_parameters(case, training, grad):
    net, x, _, random = case
    net.train(training)
    params, reference = elsewhere(net, random), copy.deepcopy(net)
    before = snapshot(net)
    with torch.set_grad_enabled(grad):
        result, expected = Network(net)(params, x), run(loaded(reference, params), x)
        assert not torch.allclose(result, run(copy.deepcopy(net), x))
    close(result, expected)
    assert_untouched(net, before, (*STATISTICS, *POWER) if training else ())
    close(dict(net.named_buffers()), dict(reference.named_buffers()))


def test_an_exception_in_the_forward_leaves_the_network_as_it_was(case):
    net, x, _, random = case
    net.eval()
    params, before, seen = elsewhere(net, random), snapshot(net), {}

    def fail(*_):
        seen.update(net.named_parameters())
        raise ArithmeticError("inside")

    hook = net.register_forward_hook(fail)
    with pytest.raises(ArithmeticError, match="inside"):
        Network(net)(params, x)
    hook.remove()
    assert all(seen[k] is w for k, w in params.items())  # it failed while the given parameters were in place
    assert_untouched(net, before)
    close(run(net, x), run(loaded(copy.deepcopy(net), before[0]), x))


def noise_by_name(bnn):
    """The next draw's noise, cut up here: parameters in their order, each in row-major order."""
    e, sign = copy.deepcopy(bnn.q.noise).paired(bnn.q.standard, bnn.q.scales.rho.detach())
    e = sign * e
    names = bnn.layout.names
    sizes = [bnn.net.get_parameter(k).numel() for k in names]
    return {k: part.view_as(bnn.net.get_parameter(k)) for k, part in zip(names, e.split(sizes), strict=True)}


def naive_step(bnn, names, x, y, num_samples):
    """NLL, KL, gradients of mu and rho by the chain rule, and buffers, from plain networks that hold the draws."""
    first, net = copy.deepcopy(bnn), copy.deepcopy(bnn.net)
    mu = {k: p.detach().clone() for k, p in bnn.net.named_parameters() if k in names}
    rho = {k: bnn.q.state_dict()[f"scales.rho.{k}"] for k in names}
    sigma = {k: rho[k].exp() for k in names}
    by_mu, by_sigma = ({k: torch.zeros_like(mu[k]) for k in names} for _ in range(2))
    statistics, nll = {}, 0.0
    for _ in range(num_samples):
        e = noise_by_name(first)
        first.q.rsample()  # on to the next noise
        loaded(net, {k: mu[k] + sigma[k] * e[k] for k in names}).zero_grad()
        z = (y - run(net, x)) / NOISE
        each = (0.5 * z.square() + math.log(NOISE * math.sqrt(2 * math.pi))).sum() / len(y) / num_samples
        each.backward()
        nll += each.item()
        for k in names:
            by_mu[k] += net.get_parameter(k).grad
            by_sigma[k] += net.get_parameter(k).grad * e[k]
        now = {k: b.clone() for k, b in net.named_buffers()}
        statistics = {k: b if not statistics or k.endswith(POWER) else statistics[k] for k, b in now.items()}
    kl = 0.0
    gains = {id(m.weight) for m in net.modules() if type(m).__name__ in NORMS}
    for k in names:
        offset = mu[k] - (1.0 if id(net.get_parameter(k)) in gains else 0.0)
        kl += (math.log(0.7) - sigma[k].log() + (offset**2 + sigma[k] ** 2) / (2 * 0.7**2) - 0.5).sum().item()
        by_mu[k] += offset / 0.7**2 / 50
        by_sigma[k] += (sigma[k] / 0.7**2 - 1 / sigma[k]) / 50
    return nll, kl, by_mu, {k: by_sigma[k] * rho[k].exp() for k in names}, statistics


@pytest.mark.parametrize("samples", [1, 3])
def test_gradients_reach_every_mean_and_scale_and_are_the_naive_ones(case, samples):
    net, x, y, random = case
    bnn = vi(case, samples=samples)
    nll, kl, by_mu, by_rho, statistics = naive_step(bnn, random_names(net, random), x, y, samples)
    before = snapshot(net)
    loss = bnn(x, y)
    loss.backward()
    assert_untouched(net, before, (*STATISTICS, *POWER))
    close(dict(net.named_buffers()), statistics)  # running statistics: those of one forward
    assert loss.item() == pytest.approx(nll + kl / 50, rel=1e-10)
    assert bnn.last.nll.item() == pytest.approx(nll, rel=1e-10)
    assert bnn.last.penalty.item() == pytest.approx(kl, rel=1e-10)
    close({k: net.get_parameter(k).grad for k in by_mu}, by_mu, 1e-9)
    close(bnn.q.scales.rho.grad, torch.cat([g.flatten() for g in by_rho.values()]), 1e-9)
    assert bnn.q.scales.rho.grad.abs().min() > 0
    assert all(p.grad is None for p in net.parameters() if not p.requires_grad)


def test_without_spread_the_loss_is_that_of_the_network_itself(case):
    net, x, y, random = case
    z = (y - run(copy.deepcopy(net), x)) / NOISE
    expected = (0.5 * z.square() + math.log(NOISE * math.sqrt(2 * math.pi))).sum().item() / len(y)
    point = MAP(copy.deepcopy(net), likelihoods.Gaussian(NOISE), num_data=50, random=random)
    point(x, y)
    assert point.last.nll.item() == pytest.approx(expected, rel=1e-12)
    narrow = vi(case, initial_scale=1e-9)
    narrow(x, y)
    assert narrow.last.nll.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_predictions_average_the_networks_of_the_draws(case):
    net, x, _, _ = case
    bnn = vi(case)
    reference = copy.deepcopy(net).eval()
    before = snapshot(net)
    prediction = bnn.predict(x, samples=3, batch_size=2, seed=11, statistics=None)
    assert_untouched(net, before)
    assert all(m.training for m in net.modules())
    draws = bnn.posterior.sample(3, seed=11)
    with torch.no_grad():
        outputs = torch.stack([run(loaded(reference, {k: w[s] for k, w in draws.items()}), x) for s in range(3)])
    close(prediction.mean, outputs.mean(0), 1e-10)
    close(prediction.epistemic, outputs.var(0, correction=0).sqrt(), 1e-8)
    assert prediction.epistemic.min() > 0


def test_pretrained_weights_are_the_means(case):
    net = case[0]
    before = snapshot(net)
    bnn = vi(case)
    assert_untouched(net, before)
    assert bnn.net is net
    assert list(bnn.posterior.mean()) == random_names(net, case[3])
    assert all(torch.equal(mean, before[0][k]) for k, mean in bnn.posterior.mean().items())


def test_state_dict_round_trip(case):
    net, x, y, random = case
    bnn, twin = vi(case), vi((copy.deepcopy(net), x, y, random), initial_scale=0.9)
    twin(x, y)
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(1.0)
    missing, unexpected = twin.load_state_dict(bnn.state_dict())
    assert not missing
    assert not unexpected
    close(twin(x, y), bnn(x, y))
    close(twin(x, y), bnn(x, y))  # the stream of noise goes on alike


def test_a_deep_copy_is_alike_and_apart(case):
    net, x, y, _ = case
    bnn = vi(case)
    bnn(x, y).backward()
    net.zero_grad()
    twin = copy.deepcopy(bnn)
    before = snapshot(net)
    optimiser = torch.optim.SGD(twin.param_groups(lr=0.1))
    loss = twin(x, y)
    loss.backward()
    optimiser.step()
    assert_untouched(net, before)
    assert all(p.grad is None for p in net.parameters())
    assert all(not torch.equal(twin.posterior.mean()[k], mean) for k, mean in bnn.posterior.mean().items())
    close(loss, bnn(x, y))


@pytest.mark.parametrize(
    ("name", "aliases"),
    [
        ("tied weights", {"embedding.weight": "decoder.weight"}),
        ("tied module", {"first.weight": "second.weight", "first.bias": "second.bias"}),
    ],
)
def test_tied_weights_are_one_draw(name, aliases):
    torch.manual_seed(0)
    net = ZOO[name][0]()
    network, q = Network(net), families.Gaussian().bind(vi((net, None, None, None)).layout)
    assert not set(aliases.values()) & set(q.layout.names)
    assert q.layout.num_params == sum(p.numel() for p in net.parameters())
    params, seen = next(q.draws()), {}
    hook = net.register_forward_hook(lambda *_: seen.update(net.named_parameters(remove_duplicate=False)))
    network(params, ZOO[name][1]().to(torch.float32) if name == "tied module" else ZOO[name][1]())
    hook.remove()
    for first, second in aliases.items():
        assert seen[first] is seen[second]
        assert seen[first] is params[first]
        assert dict(net.named_parameters(remove_duplicate=False))[second] is net.get_parameter(first)
