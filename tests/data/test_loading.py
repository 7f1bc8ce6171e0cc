import time

import pytest
import torch
from torch.utils.data import TensorDataset

from credent.data.loading import batches
from credent.errors import InputError


@pytest.fixture
def rows():
    x = torch.randn(23, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, torch.arange(23))


def order(loader):
    return torch.cat([y for _, y in loader]).tolist()


def test_without_shuffle_it_slices_in_order(rows):
    found = list(batches(rows, 5))
    for index, (x, y) in enumerate(found):
        assert torch.equal(x, rows.tensors[0][5 * index : 5 * index + 5])
        assert torch.equal(y, rows.tensors[1][5 * index : 5 * index + 5])
    assert len(found) == 5


def test_an_epoch_holds_every_row_once_with_its_label(rows):
    loader = batches(rows, 4, shuffle=True, seed=7)
    for x, y in loader:
        assert torch.equal(x, rows.tensors[0][y])
    assert sorted(order(loader)) == list(range(23))


def test_the_seed_decides_the_order_and_epochs_differ(rows):
    first, same, other = (batches(rows, 4, shuffle=True, seed=seed) for seed in (1, 1, 2))
    epochs = [order(first), order(first)]
    assert epochs == [order(same), order(same)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != order(other)
    assert epochs[0] != list(range(23))


def test_the_generator_is_the_whole_state(rows):
    """What a checkpoint must keep to go on with the same batches."""
    loader = batches(rows, 4, shuffle=True, seed=1)
    order(loader)
    state = loader.generator.get_state()
    expected = order(loader)
    resumed = batches(rows, 4, shuffle=True, seed=99)
    resumed.generator.set_state(state)
    assert order(resumed) == expected


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_global_generator_is_neither_read_nor_moved(rows, shuffle):
    before = torch.get_rng_state()
    loader = batches(rows, 4, shuffle=shuffle)
    first = order(loader)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(123)
        assert order(batches(rows, 4, shuffle=shuffle)) == first


def test_drop_last(rows):
    loader = batches(rows, 5, drop_last=True)
    assert len(loader) == 4
    assert [len(y) for _, y in loader] == [5, 5, 5, 5]


def test_a_batch_of_nothing_teaches(rows):
    with pytest.raises(InputError, match="batch_size=23"):
        batches(rows, 0)


def test_an_epoch_over_the_size_of_mnist_is_quick():
    """About 0.1 s on one core; row by row it takes several seconds."""
    loader = batches(TensorDataset(torch.zeros(60_000, 1, 28, 28), torch.zeros(60_000)), 128, shuffle=True)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert sum(len(y) for _, y in loader) == 60_000
        times.append(time.perf_counter() - start)
    assert min(times) < 0.8
