import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.training import batches

A, B, Y = torch.arange(6.0).reshape(3, 2), torch.arange(9.0).reshape(3, 3), torch.tensor([0, 1, 1])


def test_three_kinds_of_batches():
    assert batches.split((A, Y)) == (A, Y)
    assert batches.split([A, Y]) == (A, Y)
    assert batches.split((A, B, Y)) == ((A, B), Y)
    x, y = batches.split({"a": A, "labels": Y, "b": B})
    assert (list(x), y) == (["a", "b"], Y)


@pytest.mark.parametrize("batch", [A, (A,), {"a": A, "y": Y}, (A, [0, 1, 1]), "ab", None])
def test_what_is_none(batch):
    with pytest.raises(InputError, match="training needs"):
        batches.split(batch)


def test_rows_joining_and_devices_keep_the_structure():
    nested = {"a": A, "more": (B, "text")}
    picked = batches.rows(nested, torch.tensor([2, 0]))
    assert torch.equal(picked["a"], A[[2, 0]])
    assert torch.equal(picked["more"][0], B[[2, 0]])
    assert picked["more"][1] == "text"
    assert batches.to(A, torch.device("meta")).device.type == "meta"
    x, y = batches.joined([(A, B, Y), (A[:1], B[:1], Y[:1])])
    assert (x[0].shape, x[1].shape, y.tolist()) == ((4, 2), (4, 3), [0, 1, 1, 0])
    x, y = batches.joined([{"a": A, "labels": Y}] * 2)
    assert (x["a"].shape, len(y)) == ((6, 2), 6)


def test_the_first_bad_row_is_named():
    bad = B.clone()
    bad[1, 2] = torch.nan
    bad[2, 0] = torch.inf
    assert batches.first_bad((A, Y)) is None
    assert batches.first_bad({"a": A, "b": bad}) == "row 1 of a tensor (3, 3)"


class Two(nn.Module):
    """A network of two inputs, by position or by name."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(3, 2)

    def forward(self, a, b):
        return self.a(a) + self.b(b)


def test_networks_of_several_inputs_train_alike(same):
    found = []
    for batch in ((A, B, Y), {"a": A, "b": B, "labels": Y}):
        torch.manual_seed(0)
        objective = cr.MAP(Two(), cr.likelihoods.Categorical(), num_data=3)
        result = cr.fit(objective, None, [batch], steps=3, val=[batch], progress=False)
        found.append((objective.posterior.mean(), result.history))
    assert same(*found)
