"""UCI regression on the standard 20 splits: one hidden layer of 50 with a learnt noise at every input.

    test log-likelihood   mean over test rows of log (1/S) sum_s N(y; m_s(x), v_s(x)),  S = 128, in the target's units

One rule for all sets: so many steps of Adam with a cosine, and of four beta the one of greatest mean log-likelihood on
validation rows, a share of the training rows of the first three splits. Then every split is trained on all its training
rows with that beta. No search sees the test rows of its own split; the standard splits overlap, so that a set's one
beta has seen rows that other splits test. Members are posteriors from
different first weights; their mixture predicts, from as many draws in all.

Published numbers: Wu et al. 2019 (deterministic and Monte-Carlo VI, heteroscedastic), Lakshminarayanan et al. 2017
(deep ensembles, heteroscedastic), Hernandez-Lobato and Adams 2015 (PBP), Mukhoti et al. 2018 (MC dropout, tuned).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset

import credent as cr
from credent.cells import Cell
from credent.data import Data
from credent.objectives import Objective
from credent.papers.seeds import estimate
from credent.report import Column, Estimate, Table
from credent.report.numbers import Value

Results = Mapping[Cell, Mapping[str, Any]]

SETS = ("concrete", "energy", "kin8nm", "wine-quality-red", "yacht", "power-plant")
MONTE_CARLO = dict(zip(SETS, (-3.07, -1.03, 1.14, -0.92, -0.68, -2.80), strict=True))
PUBLISHED: dict[str, dict[str, float]] = {
    "Monte-Carlo VI": MONTE_CARLO,
    "DVI": dict(zip(SETS, (-3.06, -1.01, 1.13, -0.90, -0.47, -2.80), strict=True)),
    "deep ensemble of 5": dict(zip(SETS, (-3.06, -1.38, 1.20, -0.94, -1.18, -2.79), strict=True)),
    "MC dropout, tuned": dict(zip(SETS, (-2.93, -1.21, 1.14, -0.93, -1.25, -2.80), strict=True)),
    "PBP": dict(zip(SETS, (-3.16, -2.04, 0.90, -0.97, -1.63, -2.84), strict=True)),
}
MEMBERS = 4
METHODS = {
    "vi": "credent VI",
    "vi_members": f"credent VI, {MEMBERS} members",
    "map": "credent MAP",
    "vl": "credent VL",
}
VAL_SHARE, VAL_SPLITS, SPLITS = 0.15, (0, 1, 2), tuple(range(20))
DRAWS = 128


@dataclass(frozen=True)
class Setting:
    """How a network is trained."""

    method: str
    steps: int
    batch: int
    lr: float
    beta: float


CANDIDATES = {
    "smoke": tuple(Setting(m, steps=20, batch=100, lr=1e-2, beta=b) for m in METHODS for b in (0.3, 1.0)),
    "cpu": (
        *(Setting("vi", steps=4000, batch=128, lr=1e-2, beta=b) for b in (0.03, 0.1, 0.3, 1.0)),
        *(Setting("vi_members", steps=4000, batch=128, lr=1e-2, beta=b) for b in (0.1, 0.3, 0.5, 1.0)),
    ),
    "full": tuple(Setting(m, steps=20_000, batch=128, lr=1e-2, beta=b) for m in METHODS for b in (0.03, 0.1, 0.3, 1.0)),
}


@dataclass(frozen=True)
class Search(Cell):
    """A setting on validation rows of one split."""

    data: str
    split: int
    setting: Setting

    def run(self) -> dict[str, Any]:
        """Log-likelihood of the validation rows."""
        rows = cr.data.uci(self.data, self.split, val_share=VAL_SHARE)
        return _scored(_trained(rows, self.setting, self.split), rows, rows.val)


@dataclass(frozen=True)
class Split(Cell):
    """The chosen setting on all training rows of one split."""

    data: str
    split: int
    setting: Setting

    def run(self) -> dict[str, Any]:
        """Log-likelihood and RMSE of the test rows."""
        rows = cr.data.uci(self.data, self.split)
        return _scored(_trained(rows, self.setting, self.split), rows, rows.test)


def _trained(rows: Data, setting: Setting, split: int) -> list[Objective]:
    members = MEMBERS if setting.method == "vi_members" else 1
    return [_member(rows, setting, split + len(SPLITS) * number) for number in range(members)]


def _member(rows: Data, setting: Setting, seed: int) -> Objective:
    torch.manual_seed(seed)
    net = cr.models.MLP(rows.shape[0], 2, (50,))
    kind = {"vi": cr.VI, "vi_members": cr.VI, "map": cr.MAP, "vl": cr.VL}[setting.method]
    likelihood = cr.likelihoods.Gaussian("heteroscedastic")
    bnn: Objective = kind(net, likelihood, num_data=len(rows.train), beta=setting.beta)
    optimizer = torch.optim.Adam(bnn.param_groups(setting.lr, setting.lr), fused=True)
    cr.fit(
        bnn,
        optimizer,
        cr.data.batches(rows.train, setting.batch, shuffle=True, seed=seed),
        steps=setting.steps,
        scheduler=CosineAnnealingLR(optimizer, setting.steps),
        schedule="step",
        log_every=10**9,
        seed=seed,
        progress=False,
    )
    return bnn


def _scored(members: list[Objective], rows: Data, part: TensorDataset) -> dict[str, float]:
    (x, y), first = part[:], members[0]
    if len(members) == 1:
        answer = first.predict(x, samples=DRAWS)
    else:
        mixture = cr.families.Mixture([each.posterior for each in members])
        answer = cr.predict(first.net, mixture, first.likelihood, x, samples=DRAWS)
    assert isinstance(answer, cr.predictive.GaussianPredictive)
    return {
        "log_likelihood": answer.log_prob(y).double().mean().item() - math.log(rows.target_std),
        "rmse": rows.target_std * cr.metrics.rmse(answer.mean, y),
    }


def searches(scale: str, sets: Sequence[str]) -> list[Search]:
    """Every candidate on the validation rows of the first splits."""
    return [Search(name, split, each) for name in sets for split in VAL_SPLITS for each in CANDIDATES[scale]]


def chosen(results: Results) -> dict[tuple[str, str], Setting]:
    """By (set, method), the setting of greatest mean log-likelihood on validation rows; all splits must have ended."""
    found: dict[tuple[str, Setting], list[float]] = {}
    for cell, result in results.items():
        if isinstance(cell, Search) and result:
            found.setdefault((cell.data, cell.setting), []).append(result["log_likelihood"])
    best: dict[tuple[str, str], tuple[float, Setting]] = {}
    for (name, setting), values in found.items():
        mean = statistics.fmean(values)
        place = (name, setting.method)
        if len(values) == len(VAL_SPLITS) and math.isfinite(mean) and (place not in best or mean > best[place][0]):
            best[place] = (mean, setting)
    return {place: setting for place, (_, setting) in best.items()}


def splits(picked: Mapping[tuple[str, str], Setting], count: int = len(SPLITS)) -> list[Split]:
    """The chosen settings on the first so many splits."""
    return [Split(name, split, setting) for (name, _), setting in picked.items() for split in SPLITS[:count]]


READ = (
    "Test log-likelihood in the target's units, higher is better, mean ± standard error over the standard splits; one"
    " hidden layer of 50. Monte-Carlo VI, DVI and deep ensembles are heteroscedastic as credent's rows are; PBP and"
    " dropout have one noise for all inputs. The weight of the KL was chosen on validation rows of three splits."
    " Members cost as many times as much; the published numbers are of one network, but those of ensembles."
)


def scores(results: Results) -> dict[tuple[str, str], list[float]]:
    """Test log-likelihoods over splits, by (set, method)."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell, result in results.items():
        if isinstance(cell, Split) and result:
            found.setdefault((cell.data, cell.setting.method), []).append(result["log_likelihood"])
    return found


def table(results: Results) -> Table | None:
    """Ours beside the published numbers."""
    found = scores(results)
    if not found:
        return None
    methods = [method for method in METHODS if any(method == each for _, each in found)]
    columns = (
        Column("set"),
        Column("splits"),
        *(Column(METHODS[method]) for method in methods),
        *(Column(name) for name in PUBLISHED),
    )
    rows: list[tuple[Value, ...]] = []
    for name in (each for each in SETS if any(each == there for there, _ in found)):
        ours = [estimate(dict(enumerate(found.get((name, method), [])))) for method in methods]
        count = max(len(values) for (there, _), values in found.items() if there == name)
        rows.append((name, count, *ours, *(numbers[name] for numbers in PUBLISHED.values())))
    return Table("Test log-likelihood", columns, tuple(rows))


def held(results: Results, method: str = "vi") -> tuple[int, int]:
    """On how many sets the mean, to two decimals, is at least the published Monte-Carlo VI's, and of how many."""
    means = {
        name: value.value
        for (name, each), values in scores(results).items()
        if each == method and isinstance(value := estimate(dict(enumerate(values))), Estimate)
    }
    return sum(round(mean, 2) >= MONTE_CARLO[name] for name, mean in means.items()), len(means)


def verdict(results: Results) -> str:
    """The counts in words."""
    raced = {method: held(results, method) for method in METHODS}
    counts = [
        f"{METHODS[method]} on {reached} of {tested} sets" for method, (reached, tested) in raced.items() if tested
    ]
    return f"At least the published Monte-Carlo VI figure, to its two decimals: {', '.join(counts)}."
