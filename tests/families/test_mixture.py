import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.families import Draws, Gaussian, Mixture
from credent.layout import Layout


def gaussian(mean, scale):
    layout = Layout(nn.Linear(1, 1, bias=False).double())
    layout.params()["weight"].data.fill_(mean)
    return Gaussian(initial_scale=scale).bind(layout)


def test_moments_are_those_of_the_mixture():
    """By hand: means 0 and 3, scales 1/2 and 2; and by draws, within four standard errors."""
    q = Mixture([gaussian(0.0, 0.5), gaussian(3.0, 2.0)])
    variance = (0.25 + 4) / 2 + 1.5**2
    assert q.mean()["weight"].item() == pytest.approx(1.5)
    assert q.stddev()["weight"].item() == pytest.approx(math.sqrt(variance))
    drawn = q.sample(20_000, seed=1)["weight"].flatten()
    assert abs(drawn.mean().item() - 1.5) < 4 * math.sqrt(variance / 20_000)
    spread = drawn.sub(1.5).square()
    assert abs(spread.mean().item() - variance) < 4 * spread.std().item() / math.sqrt(20_000)


@pytest.mark.parametrize(("n", "shares"), [(1, (1, 0, 0)), (2, (1, 1, 0)), (5, (2, 2, 1)), (6, (2, 2, 2))])
def test_draws_are_shared_out_evenly_in_turn(n, shares):
    q = Mixture([Draws([{"w": torch.tensor([10.0 * k + i])} for i in range(4)]) for k in range(3)])
    with pytest.warns(UserWarning, match="leave out") if n < 3 else nullcontext():
        members = [int(params["w"].item() // 10) for params in q.draws(n)]
    assert tuple(members.count(k) for k in range(3)) == shares
    assert members == [i % 3 for i in range(n)]


def test_a_seed_gives_the_same_draws_and_members_do_not_share_their_noise():
    first, second = gaussian(0.0, 1.0), gaussian(0.0, 1.0)
    q = Mixture([first, second])
    drawn = q.sample(8, seed=3)["weight"].flatten()
    assert torch.equal(drawn, q.sample(8, seed=3)["weight"].flatten())
    assert not torch.equal(drawn, q.sample(8, seed=4)["weight"].flatten())
    assert torch.equal(drawn[::2], first.sample(4, seed=3)["weight"].flatten())
    assert not torch.isclose(drawn[::2], drawn[1::2]).any()


def test_a_prediction_is_the_average_of_the_members():
    torch.manual_seed(0)
    x, likelihood = torch.randn(5, 4), cr.likelihoods.Categorical()
    nets = [cr.models.MLP(4, 3, hidden=(6,)) for _ in range(3)]
    points = [Draws([{k: w.detach() for k, w in net.named_parameters()}]) for net in nets]
    pred = cr.predict(nets[0], Mixture(points), likelihood, x, samples=None)
    naive = torch.stack([net(x).softmax(-1) for net in nets]).mean(0)
    assert torch.allclose(pred.probs, naive, atol=1e-6)
    assert pred.num_draws == 3


def test_members_that_do_not_belong_together_are_refused():
    q = gaussian(0.0, 1.0)
    with pytest.raises(InputError, match="at least one"):
        Mixture([])
    with pytest.raises(InputError, match="twice"):
        Mixture([q, q])
    with pytest.raises(InputError, match="different networks"):
        Mixture([q, Draws([{"weight": torch.zeros(2, 1)}])])
    net = nn.Linear(1, 1)
    first, second = (cr.VI(net, cr.likelihoods.Gaussian(1.0), num_data=10) for _ in range(2))
    with pytest.raises(InputError, match="share the weights of one network"):
        Mixture([first.posterior, second.posterior])
    with pytest.raises(InputError, match=r"got a VI: Mixture\(\[first.posterior"):
        Mixture([first, second])
