"""Normal numbers from a table: their law, beside a naive way of making the same ones."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from tests.naive_normal import naive

import credent.quick_normal
from credent import native
from credent.noise import _ENOUGH, Noise
from credent.quick_normal import BLOCK, Stream, quick_normal_, suits

pytestmark = pytest.mark.skipif(native.kernels is None, reason="nothing was compiled: normal numbers are torch's")

MANY = 4_000_001


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def stream(seed=0):
    return Stream.of(generator(seed))


@pytest.fixture(scope="module")
def drawn():
    return quick_normal_(torch.empty(MANY), stream(1)).double()


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
    blocks = drawn[: 200 * BLOCK].view(200, 2, BLOCK // 2)
    one, other = blocks[:, 0].flatten(), blocks[:, 1].flatten()
    block, following = blocks[:-1].flatten(), blocks[1:].flatten()
    for a, b in [(one, other), (drawn[:-1], drawn[1:]), (block, following)]:
        for f, g in [(lambda t: t, lambda t: t), (torch.square, torch.square), (lambda t: t, torch.square)]:
            x, y = f(a), g(b)
            correlation = np.corrcoef(x, y)[0, 1]
            assert abs(correlation) < 4 / math.sqrt(len(a))


def test_the_two_of_a_pair_are_independent_by_cells():
    """Sixteen by sixteen equally likely cells, as far apart as a linear dependence would not show."""
    x = quick_normal_(torch.empty(16 * BLOCK), stream(7)).double().view(16, 2, BLOCK // 2)
    cell = lambda t: (special.ndtr(t.flatten().numpy()) * 16).astype(int)  # noqa: E731
    counts = np.bincount(16 * cell(x[:, 0]) + cell(x[:, 1]), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3


# -- the numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 1000, BLOCK, BLOCK + 5, 3 * BLOCK + 1])
def test_the_naive_way_makes_the_same_numbers(n):
    found = quick_normal_(torch.empty(n), stream(3))
    words = torch.randint(-(2**63), 2**63 - 1, (3,), generator=generator(3)).numpy().view(np.uint64).tolist()
    torch.testing.assert_close(found.double(), naive(n, words), rtol=0, atol=2e-6)


def test_blocks_are_counted_beyond_64_bits():
    out = torch.empty(2 * BLOCK)
    table = credent.quick_normal.quantiles()
    native.kernels.normal(1, out.data_ptr(), len(out), 5, 6, 2**64 - 1, table.data_ptr())
    torch.testing.assert_close(out.double(), naive(2 * BLOCK, (5, 6, 2**64 - 1)), rtol=0, atol=2e-6)


def test_numbers_do_not_depend_on_threads():
    n, table = 40 * BLOCK + 3, credent.quick_normal.quantiles()
    one, several = torch.empty(n), torch.empty(n)
    for threads, out in ((1, one), (3, several)):
        native.kernels.normal(threads, out.data_ptr(), n, 1, 2, 3, table.data_ptr())
    assert torch.equal(one, several)


def test_shapes_are_filled_in_the_order_of_memory():
    flat, shaped = quick_normal_(torch.empty(600), stream()), quick_normal_(torch.empty(20, 30), stream())
    assert torch.equal(shaped, flat.view(20, 30))


def test_the_next_call_has_the_next_of_the_second_word():
    begun = Stream((5, 2**64 - 1, 7))
    first, second = quick_normal_(torch.empty(100), begun), quick_normal_(torch.empty(100), begun)
    torch.testing.assert_close(first.double(), naive(100, (5, 2**64 - 1, 7)), rtol=0, atol=2e-6)
    torch.testing.assert_close(second.double(), naive(100, (5, 0, 7)), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("size", "calls"), [(1000, 400), (4, 50_000)])
def test_streams_of_calls_know_nothing_of_each_other(size, calls):
    """Their words differ by one; a sampler's bias has the first numbers of each."""
    begun = Stream.of(generator(8))
    drawn = torch.stack([quick_normal_(torch.empty(size), begun) for _ in range(calls)]).double()
    assert abs(drawn.mean()) < 4 / math.sqrt(drawn.numel())
    assert abs(drawn.square().mean() - 1) < 4 * math.sqrt(2 / drawn.numel())
    for one, other in [(drawn[:-1], drawn[1:]), (drawn[:-2], drawn[2:])]:
        for f in (lambda t: t, torch.square):
            assert abs(np.corrcoef(f(one).flatten(), f(other).flatten())[0, 1]) < 4 / math.sqrt(one.numel())


# -- where it is used --------------------------------------------------------------------------------------------------


def test_noise_is_quick_for_many_numbers_of_float32_that_lie_together(monkeypatch):
    calls = []
    monkeypatch.setattr("credent.noise.quick_normal_", lambda out, g: calls.append(len(out)) or out.zero_())
    noise = Noise(seed=0)
    many = torch.empty(_ENOUGH)
    assert noise.normal(many).count_nonzero() == 0
    for other in (many.double(), torch.empty(2 * _ENOUGH)[::2]):
        assert not suits(other)
        assert noise.normal_(other).count_nonzero() > 0
    assert noise.normal(torch.empty(_ENOUGH - 1)).count_nonzero() > 0
    assert calls == [_ENOUGH]


def test_where_nothing_was_compiled_numbers_are_torchs(monkeypatch):
    monkeypatch.setattr("credent.native.kernels", None)
    expected = torch.empty(3 * _ENOUGH).normal_(generator=torch.Generator().manual_seed(2))
    assert torch.equal(Noise(seed=2).normal(torch.empty(3 * _ENOUGH)), expected)


@pytest.mark.parametrize("size", [3, _ENOUGH, 50_000])
@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_a_saved_stream_of_noise_goes_on_with_the_same_numbers(size, taken):
    """Anywhere in a pair, with a few numbers drawn in between."""
    noise, other, like = Noise(seed=4), Noise(seed=5), torch.empty(size)
    for _ in range(taken):
        noise.paired(Noise.normal, like)
        noise.normal(torch.empty(3))
    other.load_state_dict(noise.state_dict())
    for _ in range(4):
        (e, sign), (same, other_sign) = noise.paired(Noise.normal, like), other.paired(Noise.normal, like)
        assert sign == other_sign
        assert torch.equal(e, same)
        assert torch.equal(noise.normal(torch.empty(3)), other.normal(torch.empty(3)))


def test_it_does_not_mind_torchs_default_device():
    with torch.device("meta"):
        credent.quick_normal.quantiles.cache_clear()
        found = quick_normal_(torch.empty(100, device="cpu"), stream())
    credent.quick_normal.quantiles.cache_clear()
    assert torch.equal(found, quick_normal_(torch.empty(100), stream()))
