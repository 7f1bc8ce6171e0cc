import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from credent.data import batches
from credent.training import generators

ROWS = TensorDataset(torch.arange(10))


def draw(own):
    return [
        torch.rand(2).tolist(),
        np.random.rand(2).tolist(),  # noqa: NPY002
        np.random.randn(),  # noqa: NPY002  (keeps a second normal number in store)
        random.random(),
        random.gauss(0, 1),  # keeps one, too
        torch.rand(2, generator=own).tolist(),
    ]


def test_every_stream_goes_on_where_it_was(tmp_path):
    """Through a file that is read without running code, from the middle of a pair of normal numbers."""
    own = torch.Generator().manual_seed(3)
    draw(own)
    torch.save(generators.capture([own]), tmp_path / "state.pt")
    expected = draw(own), draw(own)
    draw(own)
    generators.restore(torch.load(tmp_path / "state.pt", weights_only=True), [own])
    assert (draw(own), draw(own)) == expected


def test_a_loader_s_generators_are_found_wherever_they_are():
    one, other = torch.Generator(), torch.Generator()
    sampler = RandomSampler(ROWS, generator=other)
    assert generators.of_loader(DataLoader(ROWS, shuffle=True)) == []
    assert generators.of_loader(DataLoader(ROWS, shuffle=True, generator=one)) == [one]
    assert generators.of_loader(DataLoader(ROWS, sampler=sampler, generator=one)) == [one, other]
    assert generators.of_loader(DataLoader(ROWS, batch_sampler=BatchSampler(sampler, 2, False))) == [other]
    assert generators.of_loader(DataLoader(ROWS, sampler=BatchSampler(sampler, 2, False), batch_size=None)) == [other]
    assert len(generators.of_loader(batches(ROWS, 3, shuffle=True))) == 1
    assert generators.of_loader([(1, 2)]) == []


def test_states_of_another_loader_do_not_fit():
    with pytest.raises(ValueError, match="zip"):
        generators.restore(generators.capture([torch.Generator()]), [])
