"""Moments of two posteriors by a long NUTS run of pyro's, which nuts.json keeps.

    pip install --no-deps pyro-ppl pyro-api opt_einsum tqdm        # beside credent and scikit-learn
    python make_nuts.py tanh 0 tanh-0.json                         # a chain: problem, seed, where to
    python make_nuts.py join nuts.json tanh-*.json logistic-*.json

The potentials are written out again here, without credent. Each chain gives the mean and variance of f at the grid's
inputs, f the network's output; nuts.json says how many chains it has of each problem.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

HIDDEN, NOISE = 16, 0.3


def tanh_data():
    chance = np.random.default_rng(0)
    x = chance.uniform(-2, 2, 100)
    y = np.sin(2 * x) + NOISE * chance.standard_normal(100)
    return x[:, None].round(6), y.round(6), np.linspace(-2.5, 2.5, 21)[:, None]


def tanh_net(w, x):
    first, bias, last = w[:HIDDEN], w[HIDDEN : 2 * HIDDEN], w[2 * HIDDEN : 3 * HIDDEN]
    return torch.tanh(x * first + bias) @ last + w[-1]


def tanh_nll(f, y):
    return (f - y).square().sum() / (2 * NOISE**2)


def logistic_data():
    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(0)) / x.std(0)).round(6)
    return x[:400], y[:400].astype(float), x[400:421]


def logistic_net(w, x):
    return x @ w[:-1] + w[-1]


def logistic_nll(f, y):
    return torch.nn.functional.binary_cross_entropy_with_logits(f, y, reduction="sum")


PROBLEMS = {
    "tanh": (tanh_data, tanh_net, tanh_nll, 3 * HIDDEN + 1, 250, 150),
    "logistic": (logistic_data, logistic_net, logistic_nll, 31, 1000, 300),
}


def chain(problem, seed):
    from pyro.infer import MCMC, NUTS  # not needed to read this file, as test runs do

    data, net, nll, size, draws, warmup = PROBLEMS[problem]
    x, y, grid = (torch.tensor(a, dtype=torch.float64) for a in data())
    torch.manual_seed(seed)
    kernel = NUTS(potential_fn=lambda z: nll(net(z["w"], x), y) + 0.5 * z["w"].square().sum())  # prior N(0, 1)
    start = {"w": 0.5 * torch.randn(size, dtype=torch.float64)}
    run = MCMC(kernel, draws, warmup, initial_params=start, disable_progbar=True)
    run.run()
    f = torch.stack([net(w, grid) for w in run.get_samples()["w"]])
    return {"mean": f.mean(0).tolist(), "variance": f.var(0).tolist()}


def join(chains):
    means, variances = (np.array([c[k] for c in chains]) for k in ("mean", "variance"))
    sd = np.sqrt(variances.mean(0) + means.var(0))
    error = means.std(0, ddof=1) / math.sqrt(len(chains)) / sd
    return {
        "mean": means.mean(0).round(5).tolist(),
        "sd": sd.round(5).tolist(),
        "chains": len(chains),
        "error": round(error.max(), 4),
    }


def main(arguments):
    if arguments[0] != "join":
        problem, seed, target = arguments
        Path(target).write_text(json.dumps({"problem": problem, **chain(problem, int(seed))}))
        return
    chains = [json.loads(Path(p).read_text()) for p in arguments[2:]]
    found = {problem: join([c for c in chains if c["problem"] == problem]) for problem in PROBLEMS}
    Path(arguments[1]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
