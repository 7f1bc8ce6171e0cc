"""What the layers are shown, and what must not count as shown."""

import copy
import gc
import io
import pickle

import pytest
import torch
from torch import nn

from credent.samplers.inputs import LayerInputs


def naive(h, axis):
    h = h.double().movedim(axis, 0).reshape(h.shape[axis], -1)
    mean = h.mean(1)
    return mean, (h - mean[:, None]).square().mean(1)


@pytest.mark.parametrize(
    ("layer", "shape", "axis", "rows", "positions"),
    [
        (nn.Linear(3, 2), (5, 3), -1, 5, 1),
        (nn.Linear(3, 2), (5, 7, 3), -1, 5, 7),
        (nn.Linear(3, 2), (3,), -1, 1, 1),
        (nn.Conv1d(3, 2, 2), (5, 3, 8), 1, 5, 7),
        (nn.Conv2d(3, 2, 3, stride=2), (5, 3, 9, 7), 1, 5, 12),
        (nn.Conv2d(3, 2, 3), (3, 5, 5), 0, 1, 9),
        (nn.Conv3d(4, 2, 1, groups=2), (5, 4, 2, 3, 4), 1, 5, 24),
    ],
)
@pytest.mark.parametrize("offset", [0.0, 10.0, 1e4])
def test_moments_are_those_of_the_channels(layer, shape, axis, rows, positions, offset):
    """Also where the mean is ten thousand standard deviations, in float32."""
    torch.manual_seed(0)
    h = torch.randn(shape) + offset
    inputs = LayerInputs([layer])
    layer(h)
    found = inputs.take()[layer]
    mean, variance = naive(h, axis)
    assert (found.rows, found.positions) == (rows, positions)
    torch.testing.assert_close(found.mean.double(), mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance.double(), variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_moments_of_more_than_fits_the_cache(offset):
    """Read in parts, of which the last is short; an offset makes the squares of the quiet channels cancel."""
    torch.manual_seed(0)
    layer, h = nn.Conv2d(8, 2, 3), torch.randn(37, 8, 36, 40) * torch.logspace(-3, 3, 8)[:, None, None] + offset
    inputs = LayerInputs([layer])
    layer(h)
    found = inputs.take()[layer]
    mean, variance = naive(h, 1)
    torch.testing.assert_close(found.mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.variance.double(), variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("layer", [nn.Linear(4, 2), nn.Conv1d(4, 2, 1)])
def test_one_channel_far_from_zero_does_not_spoil_the_others(layer):
    """Nor does one that never varies, whose variance is zero."""
    torch.manual_seed(0)
    h = torch.randn(64, 4, 5) * torch.tensor([1.0, 1e-3, 1e-2, 0.0])[:, None] + torch.tensor([0, 1e3, 0, 7.0])[:, None]
    inputs = LayerInputs([layer])
    layer(h.movedim(1, -1) if isinstance(layer, nn.Linear) else h)
    found = inputs.take()[layer]
    mean, variance = naive(h, 1)
    torch.testing.assert_close(found.mean.double(), mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance.double(), variance, rtol=1e-4, atol=1e-12)


def test_channels_last_and_autocast_change_nothing():
    torch.manual_seed(0)
    layer, h = nn.Conv2d(3, 2, 3), torch.randn(4, 3, 8, 8)
    inputs = LayerInputs([layer])
    layer(h)
    plain = inputs.take()[layer]
    layer(h.to(memory_format=torch.channels_last))
    torch.testing.assert_close(inputs.take()[layer].variance, plain.variance)
    with torch.autocast("cpu", torch.bfloat16):
        layer(h.bfloat16())
    found = inputs.take()[layer]
    assert found.variance.dtype == torch.float32
    torch.testing.assert_close(found.variance, plain.variance, rtol=1e-2, atol=0)


def test_the_first_training_pass_counts_and_no_other():
    layer = nn.Linear(1, 1)
    inputs = LayerInputs([layer])
    layer.eval()
    layer(torch.full((2, 1), 5.0))
    layer.train()
    with torch.no_grad():
        layer(torch.full((2, 1), 6.0))
    copy.deepcopy(layer)(torch.full((2, 1), 7.0))
    pickle.loads(pickle.dumps(layer))(torch.full((2, 1), 8.0))
    assert inputs.take() == {}
    layer(input=torch.full((2, 1), 1.0))
    layer(torch.full((2, 1), 2.0))
    assert inputs.take()[layer].mean.item() == 1.0
    inputs.watching = False
    layer(torch.full((2, 1), 2.0))
    assert inputs.take() == {}


def test_a_watched_network_can_be_saved_whole():
    layer = nn.Linear(1, 1)
    inputs = LayerInputs([layer])
    torch.save(layer, io.BytesIO())
    assert inputs.take() == {}


def test_hooks_end_with_their_owner():
    layer = nn.Linear(1, 1)
    inputs = LayerInputs([layer])
    assert len(layer._forward_hooks) == 1
    del inputs
    gc.collect()
    assert len(layer._forward_hooks) == 0
