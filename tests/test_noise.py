import copy
import io
import math
import pickle

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


def test_a_stream_of_another_version_is_refused():
    state = Noise(seed=1).get_extra_state() | {"taken": 0}
    with pytest.raises(CheckpointError, match="another version"):
        Noise(seed=2).set_extra_state(state)
