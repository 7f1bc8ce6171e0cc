"""The horseshoe's density and slope against mpmath, its learnt scales, and its place in the objectives."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from credent import MAP, VI, VL, families, likelihoods, priors
from credent.errors import InputError
from credent.layout import Layout
from credent.priors.horseshoe import Horseshoe

TABLE = {  # w: log p, slope
    1e-3: (0.57048042, -143.559079),
    0.01: (0.16922229, -21.433609),
    0.1: (-0.50556904, -4.110717),
    1.0: (-2.14389129, -1.167057),
    10.0: (-5.99512351, -0.196221),
    100.0: (-10.58106155, -0.019996),
}


def exact(w):
    """log p and its slope with 40 digits; e^x E_1(x) is Tricomi's U(1, 1, x), which does not underflow."""
    with mpmath.workdps(40):
        w = mpmath.mpf(w)
        x = w * w / 2
        f = mpmath.exp(x) * mpmath.e1(x) if x < 500 else mpmath.hyperu(1, 1, x)
        return float(mpmath.log(f / mpmath.sqrt(2 * mpmath.pi**3))), float(w * (1 - 1 / (x * f)))


def value_and_slope(w):
    w = w.clone().requires_grad_()
    value = Horseshoe().log_density(w)
    value.sum().backward()
    return value.detach().double().numpy(), w.grad.double().numpy()


@pytest.mark.parametrize(
    ("dtype", "absolute", "relative"), [(torch.float64, 1e-10, 1e-10), (torch.float32, 5e-6, 1e-5)]
)
def test_value_and_slope_over_the_whole_range(dtype, absolute, relative):
    points = np.concatenate([np.geomspace(1e-6, 1e4, 400), np.sqrt(2) * np.linspace(0.98, 1.02, 41)])
    w = torch.tensor(points, dtype=dtype)
    value, slope = value_and_slope(w)
    expected = np.array([exact(each) for each in w.double().tolist()])
    assert np.abs(value - expected[:, 0]).max() < absolute
    assert np.abs(slope / expected[:, 1] - 1).max() < relative
    mirrored, back = value_and_slope(-w)
    assert (mirrored == value).all()
    assert (back == -slope).all()


def test_known_values():
    w = torch.tensor(list(TABLE), dtype=torch.float64)
    value, slope = value_and_slope(w)
    assert value == pytest.approx([v for v, _ in TABLE.values()], abs=1e-8)
    assert slope == pytest.approx([s for _, s in TABLE.values()], abs=1e-6)
    constant = (2 * math.pi**3) ** -0.5
    density = np.exp(value)
    assert (density > constant / 2 * np.log1p(4 / w.numpy() ** 2)).all()
    assert (density < constant * np.log1p(2 / w.numpy() ** 2)).all()


def test_the_pole_is_flat_and_half_precision_is_computed_in_single():
    value, slope = value_and_slope(torch.tensor([0.0, 1e-13, -1e-20, 1e-11]))
    assert value[0] == value[1] == value[2] > value[3]
    assert (slope[:3] == 0).all()
    assert slope[3] < -1e8
    coarse = torch.tensor([0.5, 3.0], dtype=torch.bfloat16)
    value, slope = value_and_slope(coarse)
    expected = np.array([exact(0.5), exact(3.0)])
    assert value == pytest.approx(expected[:, 0], rel=1e-2)
    assert slope == pytest.approx(expected[:, 1], rel=1e-2)


def test_many_numbers_are_many_times_one():
    """They are gone through in pieces; strides, shapes and vmap change nothing."""
    w = torch.randn(3, 70_001, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, _ = value_and_slope(w)
    assert (whole == value_and_slope(w.t())[0].T).all()
    assert (torch.func.vmap(Horseshoe().log_density)(w).numpy() == whole).all()
    assert (torch.func.vmap(Horseshoe().log_density, in_dims=1, out_dims=1)(w).numpy() == whole).all()
    each = [value_and_slope(w[2, i : i + 1])[0][0] for i in (0, 32_767, 32_768, 70_000)]
    assert each == whole[2, [0, 32_767, 32_768, 70_000]].tolist()


# -- scales -----------------------------------------------------------------------------------------------------------


def test_a_rule_sets_the_scale_itself():
    net = nn.Sequential(nn.Linear(16, 4), nn.LayerNorm(4))
    prior = Horseshoe().bind(Layout(net))
    assert prior.scale == {"0.weight": 0.25, "0.bias": 1.0, "1.weight": 1.0, "1.bias": 1.0}
    assert set(prior.stddev().values()) == {math.inf}


def learnt(net, scale="fan_in"):
    return Horseshoe(scale, learnt=True).bind(Layout(net))


def test_learnt_scales_begin_as_the_fixed_ones():
    net = nn.Sequential(nn.Linear(16, 4), nn.LayerNorm(4)).double()
    layout = Layout(net)
    fixed, free = Horseshoe().bind(layout), learnt(net)
    w = fixed.sample(1, seed=0)
    w = {k: v[0] for k, v in w.items()}
    assert free.log_prob(w).item() == pytest.approx(fixed.log_prob(w).item(), rel=1e-12)
    for k, v in free.sample(3, seed=1).items():
        torch.testing.assert_close(v, fixed.sample(3, seed=1)[k], rtol=1e-12, atol=0)
    by_layer = learnt(net, {"0.*": 0.1, "*": 2.0}).scale
    assert list(by_layer.values()) == pytest.approx([0.1, 0.1, 2.0, 2.0])


def test_learnt_scales_find_the_scale_of_many_weights():
    """At the best scale the slope of the log-density by it is zero: where the weights came from, within its error."""
    net, true = nn.Linear(200, 100, bias=False).double(), 0.3
    prior, w = learnt(net, 1.0), Horseshoe(true).bind(Layout(net)).sample(1, seed=2)["weight"][0]
    optimizer = torch.optim.LBFGS(prior.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = -prior.log_prob({"weight": w}) / w.numel()
        value.backward()
        return value

    optimizer.step(loss)
    z = torch.tensor(stats.cauchy.rvs(size=100_000, random_state=3) * stats.norm.rvs(size=100_000, random_state=4))
    score = 1 + z.numpy() * value_and_slope(z)[1]
    error = 1 / math.sqrt(w.numel() * score.var())  # of log s, by its Fisher information
    assert abs(math.log(prior.scale["weight"] / true)) < 4 * error
    assert error < 0.02


# -- in objectives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["closed", "path", "total", "score"])
def test_learnt_scales_get_the_gradient_of_the_kl(estimator):
    """E_q -d log p / d log s, by quadrature over one weight; the same for every estimator, each on average."""
    torch.manual_seed(0)
    mu, sigma, s, n = 0.8, 0.3, 0.5, 2000
    net = nn.Linear(n, 1, bias=False).double()
    nn.init.constant_(net.weight, mu)
    q = families.Gaussian(initial_scale=sigma * math.sqrt(n))
    prior = Horseshoe(s, learnt=True)
    bnn = VI(net, likelihoods.Gaussian(1.0), prior, num_data=1, family=q, estimator=estimator)
    bnn.kl([bnn.q.rsample()]).backward()
    found = float(bnn.penalty.log_scale.grad) / n
    w = np.linspace(mu - 10 * sigma, mu + 10 * sigma, 20_001)
    slope = value_and_slope(torch.tensor(w / s))[1]
    each, share = 1 + w / s * slope, stats.norm.pdf(w, mu, sigma) * (w[1] - w[0])
    mean = np.sum(each * share)
    error = math.sqrt(np.sum((each - mean) ** 2 * share) / n)
    assert abs(found - mean) < 4 * error
    assert error < 0.02


def test_trains_with_vi_and_map_in_float32():
    for build in (
        lambda net, **options: VI(net, likelihoods.Gaussian(0.5), priors.Horseshoe(), num_data=40, **options),
        lambda net, **options: VI(
            net, likelihoods.Gaussian(0.5), Horseshoe(learnt=True), num_data=40, kl_samples=3, **options
        ),
        lambda net, **options: MAP(net, likelihoods.Gaussian(0.5), priors.Horseshoe(), num_data=40, **options),
    ):
        torch.manual_seed(0)
        objective = build(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)))
        x, y = torch.randn(40, 6), torch.randn(40, 1)
        optimizer = torch.optim.Adam(objective.param_groups(lr=1e-2))
        for _ in range(30):
            optimizer.zero_grad()
            loss = objective(x, y)
            loss.backward()
            optimizer.step()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p).all() for p in objective.parameters())


def test_the_learnt_scales_are_in_the_scales_group():
    bnn = VI(nn.Linear(3, 1), likelihoods.Gaussian(1.0), Horseshoe(learnt=True), num_data=5)
    groups = {g["name"]: g["params"] for g in bnn.param_groups(lr=0.1)}
    assert any(p is bnn.penalty.log_scale for p in groups["scales"])


def test_where_it_cannot_be_used_it_says_so():
    net = nn.Linear(3, 1)
    with pytest.raises(InputError, match="this prior has no variance"):
        VL(net, likelihoods.Gaussian(1.0), priors.Horseshoe(), num_data=5)
    with pytest.raises(InputError, match=r"shrink to zero together.*Train with VI, or take Horseshoe\(\)"):
        MAP(net, likelihoods.Gaussian(1.0), Horseshoe(learnt=True), num_data=5)
