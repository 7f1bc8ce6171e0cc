"""The judge of conversions: credent is right on all networks, and each kind of mistake is seen."""

import copy
from dataclasses import replace

import pytest
import torch
from bench.peers import Task, credent, load
from bench.zoo.judge import judged
from bench.zoo.networks import CASES
from torch import nn

OURS = credent.CONVERTS["credent"]


@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "-"))
def test_credent_is_right(name):
    found = judged(OURS, CASES[name])
    assert (found.outcome, found.why) == ("right", "")


def test_a_law_holds_for_the_network_itself_whatever_its_weights():
    torch.manual_seed(0)
    for name, case in CASES.items():
        if case.law is not None:
            x = case.inputs()
            assert case.law(case.build()(x)).abs().max() < 1e-5, name
            assert case.law(torch.randn_like(case.build()(x))).abs().max() > 0.1, name  # and is no tautology


def untied(net, task):
    net = copy.deepcopy(net)
    net.decoder.weight = nn.Parameter(net.decoder.weight.detach().clone())
    return OURS(net, task)


def zero_padded(net, task):
    net.body[0].padding_mode = "zeros"
    net.body[0]._reversed_padding_repeated_twice = [1, 1, 1, 1]
    return OURS(net, task)


def head_only(net, task):
    return credent.LAPLACE["credent, random head, sampled"](net, task)


def frozen(net, task):
    print("WARNING: no draws")
    made = OURS(net, task)
    return replace(made, draw=made.mean)


def twice(net, task):
    made = OURS(net, task)
    return replace(made, step=lambda x, y: (made.step(x, y), made.step(x, y)))


def raising(net, task):
    made = OURS(net, task)

    def step(x, y):
        raise RuntimeError("no BatchNorm here\nsorry")

    return replace(made, step=step)


@pytest.mark.parametrize(
    ("case", "build", "outcome", "said"),
    [
        ("tied weights", untied, "wrong", "became two"),
        ("tied weights", untied, "wrong", "56 means for 28 weights"),
        ("circular padding", zero_padded, "wrong", "no longer circular"),
        ("circular padding", zero_padded, "wrong", "without noise its outputs differ"),
        ("embedding and LayerNorm", head_only, "partial", "49 of 115 weights"),
        ("dropout", frozen, "wrong", "all the same; it prints 'WARNING: no draws'"),
        ("BatchNorm", twice, "wrong", "move 2 times"),
        ("BatchNorm", raising, "error", "training: RuntimeError: no BatchNorm here"),
    ],
)
def test_each_kind_of_mistake_is_seen(case, build, outcome, said):
    found = judged(build, CASES[case])
    assert found.outcome == outcome
    assert said in found.why


def test_a_peer_that_does_not_import_says_why():
    assert "ModuleNotFoundError" in str(load("nobody"))
    assert Task().num_data == 60_000
