"""`credent equivalence`: which prior a regulariser is, in a sentence and in a drawing."""

import difflib
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import typer
from scipy import stats

from credent.cli.common import AsJson, guarded
from credent.equivalence import equivalence as find
from credent.errors import InputError
from credent.penalties import Dirac, penalty_of

T = TypeVar("T")


class Named(NamedTuple):
    """A penalty of one weight: what it is, and r at factor one for a family of noise."""

    meaning: str
    of: Callable[[Any], Callable[..., Any]]


PENALTIES = {
    "l1": Named("|mu|, the lasso", lambda family: lambda mu, nu: np.abs(mu)),
    "l2": Named("mu^2, weight decay", lambda family: lambda mu, nu: mu**2),
    "elastic-net": Named("|mu| + mu^2", lambda family: lambda mu, nu: np.abs(mu) + mu**2),
    "huber": Named(
        "mu^2 / 2 up to |mu| = 1, then |mu| - 1/2",
        lambda family: lambda mu, nu: np.where(np.abs(mu) < 1, mu**2 / 2, np.abs(mu) - 0.5),
    ),
    "log-cosh": Named("log cosh mu", lambda family: lambda mu, nu: np.logaddexp(mu, -mu) - math.log(2)),
    "cauchy": Named("log(1 + mu^2)", lambda family: lambda mu, nu: np.log1p(mu**2)),
    "quartic": Named("mu^4", lambda family: lambda mu, nu: mu**4),
    "kl-gaussian": Named("KL divergence to N(0, 1)", functools.partial(penalty_of, stats.norm())),
    "kl-laplace": Named("KL divergence to a Laplace of scale 1", functools.partial(penalty_of, stats.laplace())),
}
FAMILIES: dict[str, Any] = {
    "gaussian": stats.norm,
    "laplace": stats.laplace,
    "uniform": stats.uniform,
    "logistic": stats.logistic,
    "student-t": functools.partial(stats.t, 5),
    "dirac": Dirac,
}


@guarded
def equivalence(
    penalty: Annotated[str, typer.Option(help=f"One of {', '.join(PENALTIES)}; --list explains them.")] = "l2",
    family: Annotated[str, typer.Option(help=f"The noise on a weight: {', '.join(FAMILIES)} (no noise).")] = "gaussian",
    factor: Annotated[float, typer.Option(help="lambda, which multiplies the penalty.")] = 1.0,
    scale: Annotated[float | None, typer.Option(help="Scale of the noise, if it is fixed. Default: learnt.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the penalty and its prior: .png, .svg or .pdf.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Say which penalties and families there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which prior a regulariser is, or why it is none.

    Both are answers, with exit code 0. Your own penalty: cr.equivalence(lambda mu, sigma: ..., scipy.stats.norm).

    Example: credent equivalence --penalty l1 --family gaussian --plot out.png
    """
    if list_them:
        _list(as_json)
        return
    noise, r = _noise(family, scale), _pick("penalty", penalty, PENALTIES)
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"--factor {factor}: lambda is a positive number.")
    base = r.of(noise)
    found = find(lambda mu, nu: factor * base(mu, nu), noise)
    drawn = None if plot is None else found.plot(plot)
    asked = {"penalty": penalty, "family": family, "factor": factor, "scale": scale}
    if as_json:
        summary = {**asked, **found.summary(), "plot": None if drawn is None else str(drawn)}
        typer.echo(json.dumps(summary, allow_nan=False))
        return
    typer.echo(str(found))
    if drawn is not None:
        typer.echo(f"plot: {drawn}")


def _noise(family: str, scale: float | None) -> Any:
    chosen = _pick("family", family, FAMILIES)
    if scale is None:
        return chosen
    if chosen is Dirac:
        raise InputError("--family dirac is no noise, so it has no --scale; leave one of them out.")
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"--scale {scale}: a scale is positive; no noise at all is --family dirac.")
    return chosen(scale=scale)


def _pick(what: str, name: str, known: dict[str, T]) -> T:
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"--{what} {name!r}: there is none of that name.{hint} There are {', '.join(known)}.")
    return known[name]


def _list(as_json: bool) -> None:
    if as_json:
        meanings = {name: each.meaning for name, each in PENALTIES.items()}
        typer.echo(json.dumps({"penalties": meanings, "families": list(FAMILIES)}))
        return
    for name, each in PENALTIES.items():
        typer.echo(f"  {name:<12} {each.meaning}")
    typer.echo(f"families: {', '.join(FAMILIES)} (no noise); student-t has 5 degrees of freedom")
