"""Normal numbers from a table: their law, beside a naive way of making the same ones."""

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import special, stats

import credent.quick_normal
from credent.noise import _ENOUGH, _POOL, Noise
from credent.quick_normal import _BLOCK, quick_normal_, suits

MANY = 4_000_001


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def drawn():
    return quick_normal_(torch.empty(MANY), generator(1)).double()


# -- the law, within four standard errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("power", "expected", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)]
)
def test_moments(drawn, power, expected, variance):
    assert abs(drawn.pow(power).mean().item() - expected) < 4 * math.sqrt(variance / MANY)


def test_quantiles_are_those_of_a_normal_law(drawn):
    assert stats.kstest(drawn.numpy(), stats.norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("beyond", [1.0, 3.0, 4.0, 4.5])
def test_tails(drawn, beyond):
    expected = MANY * 2 * stats.norm.sf(beyond)
    assert abs((drawn.abs() > beyond).sum().item() - expected) < 4 * math.sqrt(expected)


def test_numbers_know_nothing_of_their_neighbours_or_of_the_other_of_their_pair(drawn):
    block = drawn[:_BLOCK]
    one, other = block[: _BLOCK // 2], block[_BLOCK // 2 :]
    following = drawn[_BLOCK : 2 * _BLOCK]
    for a, b in [(one, other), (drawn[:-1], drawn[1:]), (block, following)]:
        for f, g in [(lambda t: t, lambda t: t), (torch.square, torch.square), (lambda t: t, torch.square)]:
            x, y = f(a), g(b)
            correlation = np.corrcoef(x, y)[0, 1]
            assert abs(correlation) < 4 / math.sqrt(len(a))


def test_the_two_of_a_pair_are_independent_by_cells():
    """Sixteen by sixteen equally likely cells, as far apart as a linear dependence would not show."""
    x = quick_normal_(torch.empty(_BLOCK), generator(7)).double()
    cell = lambda t: (special.ndtr(t.numpy()) * 16).astype(int)  # noqa: E731
    counts = np.bincount(16 * cell(x[: _BLOCK // 2]) + cell(x[_BLOCK // 2 :]), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3


# -- the numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 1000, _BLOCK + 5])
def test_the_naive_way_makes_the_same_numbers(n):
    found = quick_normal_(torch.empty(n), generator(3))
    a, b, c = torch.randint(-(2**63), 2**63 - 1, (3,), generator=generator(3)).numpy().view(np.uint64).tolist()
    bits = np.random.SFC64(0)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array([a, b, c, 1], dtype=np.uint64)},
        "has_uint32": 0,
        "uinteger": 0,
    }
    bits.random_raw(12)  # as its author starts it
    q = special.ndtri((np.arange(65536) + 0.5) / 65536)
    q = q / q.std()
    expected = []
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        half = (size + 1) // 2
        raw = [int(word) for word in bits.random_raw((half + 1) // 2)]
        sixteen = [word >> shift & 65535 for word in raw for shift in (0, 16, 32, 48)]
        pairs = [(q[i], q[j]) for i, j in zip(sixteen[:half], sixteen[half : 2 * half], strict=True)]
        both = [(i + j) / math.sqrt(2) for i, j in pairs] + [(i - j) / math.sqrt(2) for i, j in pairs]
        expected += both[:size]
    assert torch.allclose(found.double(), torch.tensor(expected, dtype=torch.float64), atol=2e-6)


def test_shapes_are_filled_in_the_order_of_memory():
    flat, shaped = quick_normal_(torch.empty(600), generator()), quick_normal_(torch.empty(20, 30), generator())
    assert torch.equal(shaped, flat.view(20, 30))


def test_a_generator_goes_on():
    one = generator()
    first, second = quick_normal_(torch.empty(100), one), quick_normal_(torch.empty(100), one)
    assert not torch.equal(first, second)


# -- where it is used --------------------------------------------------------------------------------------------------


def test_noise_is_quick_for_many_numbers_of_float32_that_lie_together(monkeypatch):
    calls = []
    monkeypatch.setattr("credent.noise.quick_normal_", lambda out, g: calls.append(len(out)) or out.zero_())
    noise = Noise(seed=0)
    many = torch.empty(_POOL)
    assert noise.normal(many).count_nonzero() == 0
    for other in (many.double(), torch.empty(2 * _POOL)[::2]):
        assert not suits(other)
        assert noise.normal_(other).count_nonzero() > 0
    assert noise.normal(torch.empty(_ENOUGH - 1)).count_nonzero() > 0
    assert calls == [_POOL]


def in_use(seed):
    """A stream that has drawn for so long that it takes thousands of numbers from a pool, and its generator."""
    noise = Noise(seed)
    for _ in range(2):
        noise.normal(torch.empty(_POOL // 2))
    generator = torch.Generator()
    generator.set_state(noise.get_extra_state()["state"])
    return noise, generator


def test_a_stream_begins_with_torchs_numbers():
    noise, theirs = Noise(seed=3), torch.Generator().manual_seed(3)
    for _ in range(4):
        assert torch.equal(noise.normal(torch.empty(_POOL // 4)), torch.empty(_POOL // 4).normal_(generator=theirs))
    assert not torch.equal(noise.normal(torch.empty(9000)), torch.empty(9000).normal_(generator=theirs))


def test_draws_of_thousands_are_taken_from_one_pool_in_turn():
    size = _POOL // 3 - 1  # three fill it but for three numbers, which are left
    noise, theirs = in_use(4)
    first = quick_normal_(torch.empty(_POOL), theirs)
    drawn = [noise.normal(torch.empty(size)) for _ in range(4)]
    for k in range(3):
        assert torch.equal(drawn[k], first[k * size : (k + 1) * size])
    assert len(torch.cat(drawn).unique()) > 0.99 * 4 * size
    assert not torch.equal(drawn[3], drawn[0])
    shaped = noise.normal(torch.empty(10, size // 10))
    assert shaped.shape == (10, size // 10)


def test_numbers_of_the_pool_and_of_the_generator_have_nothing_to_do_with_each_other():
    noise, theirs = in_use(5)
    pooled, few = noise.normal(torch.empty(_ENOUGH)), noise.normal(torch.empty(_ENOUGH - 1))
    together = np.corrcoef(pooled[:-1], few)[0, 1]
    assert abs(together) < 4 / math.sqrt(_ENOUGH)
    assert not torch.equal(few, torch.empty(_ENOUGH - 1).normal_(generator=theirs))


@pytest.mark.parametrize("size", [_ENOUGH, 50_000, _POOL // 2, _POOL])
@pytest.mark.parametrize("taken", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("used", [False, True])
def test_a_saved_stream_of_noise_goes_on_with_the_same_numbers(size, taken, used):
    """Anywhere in a pool and in a pair, with a few numbers drawn in between."""
    noise, other, like = in_use(4)[0] if used else Noise(seed=4), Noise(seed=5), torch.empty(size)
    for _ in range(taken):
        noise.paired(Noise.normal, like)
        noise.normal(torch.empty(3))
    other.load_state_dict(noise.state_dict())
    for _ in range(8):
        (e, sign), (same, other_sign) = noise.paired(Noise.normal, like), other.paired(Noise.normal, like)
        assert sign == other_sign
        assert torch.equal(e, same)
        assert torch.equal(noise.normal(torch.empty(3)), other.normal(torch.empty(3)))


def test_a_copy_has_no_pool_and_goes_on_all_the_same():
    noise, like = in_use(6)[0], torch.empty(_ENOUGH)
    noise.normal(like)
    copied = pickle.loads(pickle.dumps(noise))
    assert copied._pool is None
    assert torch.equal(copied.normal(like), noise.normal(like))


def test_a_seed_begins_a_new_pool():
    noise, like = in_use(7)[0], torch.empty(_ENOUGH)
    noise.normal(like)
    noise.seed(7)
    assert torch.equal(noise.normal(like), Noise(seed=7).normal(like))


def test_it_does_not_mind_torchs_default_device():
    with torch.device("meta"):
        credent.quick_normal.quantiles.cache_clear()
        found = quick_normal_(torch.empty(100, device="cpu"), generator())
    credent.quick_normal.quantiles.cache_clear()
    assert torch.equal(found, quick_normal_(torch.empty(100), generator()))
