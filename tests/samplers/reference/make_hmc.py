"""Moments of make_nuts.py's two posteriors by Hamiltonian Monte Carlo in float64, which hmc.json keeps.

    python make_hmc.py tanh 0 1500 tanh-0.json            # 64 chains at once: problem, seed, draws each, where to
    python make_hmc.py join hmc.json tanh-*.json logistic-*.json

Leapfrog trajectories with a Metropolis step have the posterior as their law at any step size, as NUTS has, and many
chains share every operation: hundreds of times the draws of nuts.json in the same time, and so an error of a hundredth
where NUTS has a tenth. Potentials and gradients are written out by hand, and held to autograd on those of make_nuts.py.
"""

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

NUTS = runpy.run_path(str(Path(__file__).with_name("make_nuts.py")))
PROBLEMS, HIDDEN, NOISE = NUTS["PROBLEMS"], NUTS["HIDDEN"], NUTS["NOISE"]
CHAINS = 64
LENGTH, STEP = {"tanh": 1.6, "logistic": 2.0}, {"tanh": 5e-3, "logistic": 5e-2}  # of trajectories; the first step size


def tanh_network(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden units (chains, units, inputs) and outputs (chains, inputs)."""
    first, bias, last = (w[:, i * HIDDEN : (i + 1) * HIDDEN] for i in range(3))
    h = torch.tanh(torch.addcmul(bias[:, :, None], first[:, :, None], x.T[None]))
    return h, (last[:, None] @ h)[:, 0] + w[:, -1:]


def tanh_potential(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """U and its gradient, for each chain."""
    h, f = tanh_network(w, x)
    residual = (f - y) / NOISE**2
    back = h.square().neg_().add_(1).mul_(residual[:, None]) @ torch.cat([x, torch.ones_like(x)], 1)
    last = w[:, 2 * HIDDEN : 3 * HIDDEN]
    parts = [back[..., 0] * last, back[..., 1] * last, (h @ residual[:, :, None])[:, :, 0], residual.sum(1, True)]
    return residual.square().sum(1) * NOISE**2 / 2 + w.square().sum(1) / 2, torch.cat(parts, 1) + w


def logistic_network(w: Tensor, x: Tensor) -> tuple[None, Tensor]:
    return None, w[:, :-1] @ x.T + w[:, -1:]


def logistic_potential(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    f = logistic_network(w, x)[1]
    wrong = torch.sigmoid(f) - y
    u = (torch.nn.functional.softplus(f) - y * f).sum(1) + w.square().sum(1) / 2
    return u, torch.cat([wrong @ x, wrong.sum(1, True)], 1) + w


MINE = {"tanh": (tanh_network, tanh_potential), "logistic": (logistic_network, logistic_potential)}


def check(problem: str) -> None:
    """Potential and gradient are those of make_nuts.py."""
    data, net, nll, size, *_ = PROBLEMS[problem]
    x, y, _ = (torch.tensor(a, dtype=torch.float64) for a in data())
    w = torch.randn(3, size, dtype=torch.float64, requires_grad=True)
    u = torch.stack([nll(net(each, x), y) + each.square().sum() / 2 for each in w])
    torch.testing.assert_close(MINE[problem][1](w.detach(), x, y), (u.detach(), torch.autograd.grad(u.sum(), w)[0]))


def chains(problem: str, seed: int, draws: int) -> dict[str, object]:
    """Mean and variance of f at the grid in each chain; the step is tuned, and not used, in the first sixth."""
    torch.manual_seed(seed)
    check(problem)
    network, potential = MINE[problem]
    x, y, grid = (torch.tensor(a, dtype=torch.float64) for a in PROBLEMS[problem][0]())
    w = 0.5 * torch.randn(CHAINS, PROBLEMS[problem][3], dtype=torch.float64)
    step, accepted, found = STEP[problem], [], []
    u, g = potential(w, x, y)
    for i in range(-(draws // 5), draws):
        eps = step * (0.8 + 0.4 * torch.rand(()).item())
        p = torch.randn_like(w)
        w1, p1, g1, energy = w.clone(), p.clone(), g, u + p.square().sum(1) / 2
        for _ in range(math.ceil(LENGTH[problem] * (0.5 + torch.rand(()).item()) / step)):
            p1.sub_(g1, alpha=eps / 2)
            w1.add_(p1, alpha=eps)
            u1, g1 = potential(w1, x, y)
            p1.sub_(g1, alpha=eps / 2)
        odds = (energy - u1 - p1.square().sum(1) / 2).exp().nan_to_num(0).clamp(max=1)
        taken = torch.rand(CHAINS) < odds
        w, u, g = (torch.where(taken.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in ((w1, w), (u1, u), (g1, g)))
        if i < 0:
            step *= math.exp(0.1 * (odds.mean().item() - 0.8))
        else:
            accepted.append(odds.mean().item())
            found.append(network(w, grid)[1])
    f = torch.stack(found)
    moments = {"mean": f.mean(0).tolist(), "square": f.square().mean(0).tolist()}
    return {"problem": problem, "draws": draws, "step": step, "accepted": float(np.mean(accepted)), **moments}


def join(runs: list[dict[str, object]]) -> dict[str, object]:
    """Moments over all chains; errors are those that chains, which know nothing of each other, have together."""
    mean, square = (np.concatenate([run[k] for run in runs]) for k in ("mean", "square"))
    centre, count = mean.mean(0), len(mean)
    variance = square - 2 * centre * mean + centre**2  # about the common mean
    sd = np.sqrt(variance.mean(0))
    return {
        "mean": centre.round(5).tolist(),
        "sd": sd.round(5).tolist(),
        "chains": count,
        "draws": runs[0]["draws"],
        "error": {  # in units of the standard deviation, at the worst input
            "mean": round((mean.std(0, ddof=1) / math.sqrt(count) / sd).max(), 4),
            "sd": round((variance.std(0, ddof=1) / math.sqrt(count) / (2 * sd**2)).max(), 4),
        },
    }


def main(arguments: list[str]) -> None:
    if arguments[0] != "join":
        problem, seed, draws, target = arguments
        Path(target).write_text(json.dumps(chains(problem, int(seed), int(draws))))
        return
    runs = [json.loads(Path(p).read_text()) for p in arguments[2:]]
    found = {problem: join([run for run in runs if run["problem"] == problem]) for problem in PROBLEMS}
    Path(arguments[1]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
