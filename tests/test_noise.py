import copy
import io
import math
import os
import pickle
import signal

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from credent.errors import CheckpointError
from credent.noise import Noise, fresh_seed


def numbers(noise, n=4):
    return noise.normal(torch.empty(n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_is_standard_normal(dtype):
    drawn = Noise(seed=0).normal(torch.empty(50_000, dtype=dtype))
    assert drawn.dtype == dtype
    assert stats.kstest(drawn.numpy(), stats.norm.cdf).pvalue > 1e-3
    together = np.corrcoef(drawn[:-1], drawn[1:])[0, 1]
    assert abs(together) < 4 / math.sqrt(50_000)


def test_normal_is_shaped_as_asked_and_leaves_its_argument_alone():
    like = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    drawn = Noise(seed=0).normal(like)
    assert drawn.shape == like.shape
    assert drawn.stride() == like.stride()
    assert (like == 0).all()
    assert not Noise(0).normal(torch.zeros(1, requires_grad=True)).requires_grad


def test_a_seed_fixes_the_stream():
    a, b, other = Noise(seed=1), Noise(seed=1), Noise(seed=2)
    first = numbers(a)
    assert torch.equal(first, numbers(b))
    assert not torch.equal(first, numbers(other))
    assert not torch.equal(first, numbers(a))
    a.seed(1)
    assert torch.equal(first, numbers(a))


def test_unseeded_follows_the_global_seed_once():
    torch.manual_seed(3)
    a, b = Noise(), Noise()
    torch.manual_seed(3)
    again = Noise()
    first = numbers(a)
    assert torch.equal(first, numbers(again))
    assert not torch.equal(first, numbers(b))


def test_drawing_leaves_the_global_generator_alone():
    torch.manual_seed(4)
    before = torch.get_rng_state()
    numbers(Noise(seed=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_fresh_seeds_differ_and_follow_the_global_seed():
    torch.manual_seed(5)
    seeds = [fresh_seed() for _ in range(100)]
    torch.manual_seed(5)
    assert seeds == [fresh_seed() for _ in range(100)]
    assert len(set(seeds)) == 100
    assert max(seeds) > 2**61  # all of the range


def test_state_is_the_position_in_the_stream():
    a = Noise(seed=1)
    numbers(a, 5)
    state = copy.deepcopy(a.state_dict())
    ahead = numbers(a)
    b = Noise(seed=9)
    b.load_state_dict(state)
    assert torch.equal(numbers(b), ahead)
    a.load_state_dict(state)
    assert torch.equal(numbers(a), ahead)


def test_state_travels_with_the_module_that_holds_it_through_a_safe_file():
    holder = nn.ModuleDict({"noise": Noise(seed=1)})
    numbers(holder["noise"])
    file = io.BytesIO()
    torch.save(holder.state_dict(), file)
    ahead = numbers(holder["noise"])
    file.seek(0)
    other = nn.ModuleDict({"noise": Noise(seed=2)})
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(numbers(other["noise"]), ahead)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_from_the_same_place_by_itself(copied):
    a = Noise(seed=1)
    numbers(a)
    b = copied(a)
    ahead = numbers(a)
    numbers(a)
    assert torch.equal(numbers(b), ahead)


def test_paired_draws_mirror_each_other_and_go_on():
    noise, naive = Noise(seed=3), Noise(seed=3)
    like = torch.zeros(5)
    drawn = [sign * e for e, sign in (noise.paired(Noise.normal, like) for _ in range(4))]
    first, second = naive.normal(like), naive.normal(like)
    for got, expected in zip(drawn, [first, -first, second, -second], strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_half_used_pair_is_saved(taken):
    """Saved between the halves, with other draws in between, the restored stream goes on as the first one does."""
    noise, like = Noise(seed=4), torch.zeros(3)
    for _ in range(taken):
        noise.paired(Noise.normal, like)
    noise.normal(like)
    other = Noise(seed=99)
    other.load_state_dict(noise.state_dict())
    for _ in range(3):
        (e, sign), (same, other_sign) = noise.paired(Noise.normal, like), other.paired(Noise.normal, like)
        assert sign == other_sign
        assert torch.equal(e, same)
    assert torch.equal(noise.normal(like), other.normal(like))


def test_a_conversion_between_the_halves_starts_a_new_pair():
    noise = Noise(seed=5)
    noise.paired(Noise.normal, torch.zeros(2))
    e, sign = noise.paired(Noise.normal, torch.zeros(2, dtype=torch.float64))
    assert (e.dtype, sign) == (torch.float64, 1)


LONG = 4 * 20_000


def test_the_quarters_of_a_long_vector_are_streams_of_their_own():
    """Standard normal each, and independent of one another and of the next draw."""
    noise = Noise(seed=6)
    rows = torch.cat([noise.normal(torch.empty(LONG)).view(4, -1), noise.normal(torch.empty(LONG)).view(4, -1)])
    assert all(stats.kstest(row.numpy(), stats.norm.cdf).pvalue > 1e-3 for row in rows)
    together = torch.corrcoef(rows) - torch.eye(8)
    assert together.abs().max() < 4.5 / math.sqrt(LONG / 4)
    naive = torch.empty(LONG // 4).normal_(generator=torch.Generator().manual_seed(6))
    assert torch.equal(rows[0], naive)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_numbers_do_not_depend_on_the_threads(threads):
    drawn = []
    for count in (1, 2, 3, 8):
        threads(count)
        noise = Noise(seed=7)
        noise.normal(torch.empty(5))
        drawn.append(torch.cat([noise.normal(torch.empty(LONG + 3)) for _ in range(2)]))
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])
    assert len(drawn[0].unique()) > 0.99 * len(drawn[0])


def test_long_vectors_are_drawn_in_inference_mode_too(threads):
    threads(2)
    with torch.inference_mode():
        inside = Noise(seed=8).normal(torch.empty(LONG))
    assert torch.equal(inside.clone(), Noise(seed=8).normal(torch.empty(LONG)))


def test_a_long_parameter_is_filled_where_no_gradient_flows(threads):
    threads(2)
    parameter = nn.Parameter(torch.zeros(LONG))
    with torch.no_grad():
        Noise(seed=8).normal_(parameter)
    assert torch.equal(parameter.data, Noise(seed=8).normal(torch.empty(LONG)))


def test_the_state_of_an_earlier_version_is_refused():
    noise = Noise(seed=1)
    state = noise.get_extra_state()
    with pytest.raises(CheckpointError, match="earlier version"):
        noise.set_extra_state(state | {"state": state["state"][0]})


@pytest.mark.parametrize("taken", [1, 2])
def test_the_place_in_all_streams_of_a_long_vector_is_saved(taken):
    noise, like = Noise(seed=9), torch.empty(LONG)
    for _ in range(taken):
        noise.paired(Noise.normal, like)
    other = Noise(seed=10)
    other.load_state_dict(noise.state_dict())
    for _ in range(2):
        assert torch.equal(noise.paired(Noise.normal, like)[0], other.paired(Noise.normal, like)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_has_threads_of_its_own(threads):
    """The parent's threads are not there any more; waiting for one would be for ever."""
    threads(2)
    expected = Noise(seed=11).normal(torch.empty(LONG)).numpy()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        same = np.array_equal(Noise(seed=11).normal(torch.empty(LONG)).numpy(), expected)  # torch's own may not return
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
