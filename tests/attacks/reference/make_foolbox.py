"""Robust accuracies by foolbox of a small convolutional network that reads standardised digits, kept in foolbox.json.

    pip install --no-deps foolbox eagerpy gitpython gitdb smmap requests urllib3 idna certifi charset-normalizer
    python make_foolbox.py foolbox.json

The file holds the network as well, rounded, since training it again elsewhere would not give the same digits. Its
inputs are the first 200 test images of the built-in digits, in pixels from 0 to 1; `checksum` is of their grey levels
and labels.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import nn

import credent as cr

EPSILONS = {"linf": [0.02, 0.05, 0.1], "l2": [0.1, 0.4, 0.8]}
STEPS, STEP = 20, 0.125  # of projected gradient descent, the step in radii


def network():
    """As it is before training."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )


def images():
    """Pixels (200, 1, 8, 8), labels, and their checksum."""
    pixels, labels = (t[:200] for t in cr.data.load("digits").test[:])
    levels = (16 * pixels).round().to(torch.uint8)  # digits have 16 of them
    return pixels, labels, hashlib.sha256(levels.numpy().tobytes() + bytes(labels.tolist())).hexdigest()


def trained():
    """The network's state, and mean and standard deviation of the pixels, as they are written."""
    x, y = cr.data.load("digits").train[:]
    mean, std = round(x.mean().item(), 4), round(x.std().item(), 4)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(60):
        nn.functional.cross_entropy(net((x - mean) / std), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {k: t.float().mul(1e4).round().long() for k, t in net.state_dict().items() if t.is_floating_point()}
    return {k: t.tolist() for k, t in state.items()}, mean, std


def rebuilt(kept):
    """The network of a file, in evaluation mode."""
    net = network()
    net.load_state_dict({k: torch.tensor(t) / 1e4 for k, t in kept["state in 1e-4"].items()}, strict=False)
    return net.eval()


def accuracies(net, mean, std):
    """Of foolbox's attacks, by norm."""
    import foolbox  # not needed to read this file, as test runs do

    pixels, labels, _ = images()
    model = foolbox.PyTorchModel(net, bounds=(0, 1), preprocessing={"mean": [mean], "std": [std], "axis": -3})
    found = {}
    for norm, epsilons in EPSILONS.items():
        prefix = norm.capitalize()
        fast = getattr(foolbox.attacks, f"{prefix}FastGradientAttack")(random_start=False)
        slow = getattr(foolbox.attacks, f"{prefix}PGD")(rel_stepsize=STEP, steps=STEPS, random_start=False)
        found[norm] = {"epsilons": epsilons}
        for name, attack in (("FGSM", fast), ("PGD", slow)):
            *_, fooled = attack(model, pixels, labels, epsilons=epsilons)
            found[norm][name] = [round(1 - row.double().mean().item(), 4) for row in fooled]
    return foolbox.__version__, found


if __name__ == "__main__":
    state, mean, std = trained()
    kept = {"checksum": images()[2], "mean": mean, "std": std, "state in 1e-4": state}
    version, found = accuracies(rebuilt(kept), mean, std)
    text = json.dumps({"foolbox": version, "accuracies": found, **kept})
    Path(sys.argv[1]).write_text(text + "\n")
