"""Moments of the Griewank network's posterior by NUTS, pyro's, which src/credent/papers/bnp/griewank.json keeps.

    pip install --no-deps pyro-ppl pyro-api opt_einsum tqdm
    python make_griewank.py 0 chain-0.json                         # a chain: seed, where to
    python make_griewank.py join griewank.json chain-*.json

The potential is written out again here, without credent: a network 2-100-100-1 with ReLU, noise of variance 0.1, and
independent Gaussian priors, of variance 1 / fan_in for weights and 1 for biases. A chain moves in
units of the prior and of standardised inputs (as the weights are, it hardly moves at all: two chains of different
starts then stay apart), starts near an optimum that Adam finds, and has trees of at most 2^6 - 1 leaves, as 10,601
numbers on two cores allow. Each chain gives the mean and variance of the network's output at the first POINTS test
inputs, of all draws and of each half, and U at the first and the last draw: about 5,800 where it is stationary.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch

ROWS, POINTS, HIDDEN, VARIANCE = 1000, 200, 100, 0.1
WARMUP, DRAWS, DEPTH = 250, 200, 6
SIZES = ((HIDDEN, 2), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (1, HIDDEN), (1,))
COUNTS = [math.prod(size) for size in SIZES]


def inputs(rows, generator):
    return torch.rand(rows, 2, generator=generator) * torch.tensor([2.5, 17.5]) + torch.tensor([-7.5, -2.5])


def data():
    generator = torch.Generator().manual_seed(0)
    x = inputs(ROWS, generator)
    f = 1 + x.square().sum(1) / 4000 - torch.cos(x[:, 0]) * torch.cos(x[:, 1] * math.sqrt(2) / 2)
    y = f + math.sqrt(VARIANCE) * torch.randn(ROWS, generator=generator)
    return x.double(), y.double(), inputs(POINTS, torch.Generator().manual_seed(1)).double()


def net(w, x):
    a, b, c, d, e, f = (part.view(size) for part, size in zip(w.split(COUNTS), SIZES, strict=True))
    return (torch.relu(torch.relu(x @ a.T + b) @ c.T + d) @ e.T + f)[:, 0]


def chain(seed):
    from pyro.infer import MCMC, NUTS  # not needed to read this file, as test runs do

    x, y, points = data()
    precision = torch.cat(
        [torch.full((n,), float(size[1]) if len(size) > 1 else 1.0) for n, size in zip(COUNTS, SIZES, strict=True)]
    ).double()

    middle, spread = x.mean(0), x.std(0, correction=0)

    def weights(z):
        """The prior's scale is taken out, and the first layer is that of standardised inputs: both are linear."""
        w = z / precision.sqrt()
        first = w[: COUNTS[0]].view(SIZES[0]) / spread
        return torch.cat([first.flatten(), w[COUNTS[0] : COUNTS[0] + HIDDEN] - first @ middle, w[COUNTS[0] + HIDDEN :]])

    def potential(z):
        w = weights(z["w"])
        return (net(w, x) - y).square().sum() / (2 * VARIANCE) + 0.5 * (precision * w.square()).sum()

    torch.manual_seed(seed)
    w = (0.7 * torch.randn(sum(COUNTS), dtype=torch.float64)).requires_grad_()
    adam = torch.optim.Adam([w], lr=1e-2)
    for _ in range(400):
        adam.zero_grad()
        potential({"w": w}).backward()
        adam.step()
    kernel = NUTS(potential_fn=potential, max_tree_depth=DEPTH, target_accept_prob=0.7, adapt_mass_matrix=False)
    start = {"w": w.detach()}
    run = MCMC(kernel, DRAWS, WARMUP, initial_params=start, disable_progbar=True)
    run.run()
    f = torch.stack([net(weights(draw), points) for draw in run.get_samples()["w"]])
    halves = [{"mean": h.mean(0).tolist(), "variance": h.var(0).tolist()} for h in f.chunk(2)]
    ends = [potential({"w": run.get_samples()["w"][i]}).item() for i in (0, -1)]
    whole = {"mean": f.mean(0).tolist(), "variance": f.var(0).tolist()}
    return {**whole, "halves": halves, "potential": ends, "draws": len(f)}


def join(chains):
    means, variances = (np.array([c[k] for c in chains]) for k in ("mean", "variance"))
    sd = np.sqrt(variances.mean(0) + means.var(0))
    error = means.std(0, ddof=1) / math.sqrt(len(chains)) / sd
    return {
        "mean": means.mean(0).round(4).tolist(),
        "sd": sd.round(4).tolist(),
        "chains": len(chains),
        "draws": chains[0]["draws"],
        "error": round(float(np.sqrt((error**2).mean())), 3),
    }


def main(arguments):
    if arguments[0] != "join":
        start = time.time()
        Path(arguments[1]).write_text(json.dumps(chain(int(arguments[0]))))
        print(f"{time.time() - start:.0f} s")
        return
    chains = [json.loads(Path(p).read_text()) for p in arguments[2:]]
    Path(arguments[1]).write_text(json.dumps(join(chains)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
