"""Which runs a sweep has: every combination of the grids, `runs` draws for each, and each of them with `seeds` seeds.

    settings = product of the lists and of the base values of jitters  x  draws 0 .. runs - 1

A draw follows from the sweep's `draw_seed`, the number of the draw, the name of what is drawn and the base values that
it is jittered around, and from nothing else. So a sweep that is resumed, or has more runs, or has one value more in a
list, makes the runs it made before; and the values of a list are compared under the same draws.

>>> [each["lr"] for each in settings({"lr": [0.1, 0.2]})]
[0.1, 0.2]
>>> few, many = ([*settings({"lr": LogUniform(1e-4, 1.0)}, runs=n)] for n in (2, 5))
>>> few == many[:2], len(many)
(True, 5)
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from random import Random
from typing import Any

from credent.errors import InputError
from credent.sweeps.vary import Choice, Jitter, LogUniform, Plain, Uniform, Varied

Values = dict[str, Plain]


def settings(
    vary: Mapping[str, Varied],
    runs: int | None = None,
    draw_seed: int = 0,
    whole: Callable[[str], bool] = lambda name: False,
) -> Iterator[Values]:
    """The varied values of each run, before seeds; those for which `whole` holds are rounded when they are drawn."""
    _check(vary, runs)
    drawn = {name: how for name, how in vary.items() if isinstance(how, Uniform | LogUniform | Choice)}
    jittered = {name: how for name, how in vary.items() if isinstance(how, Jitter)}
    grids: list[list[Any]] = [[None] if name in drawn else _listed(how) for name, how in vary.items()]
    for combination in product(*grids):
        values = dict(zip(vary, combination, strict=True))
        bases = {name: values[name] for name in jittered}
        for number in range(runs or 1):
            found = dict(values)
            for name in (*drawn, *jittered):
                random = Random(f"{draw_seed} {number} {name} {bases}")
                if name in jittered:
                    found[name] = jittered[name].around(bases[name], random, whole(name))
                else:
                    value = drawn[name].draw(random)
                    found[name] = round(value) if whole(name) and isinstance(value, float) else value
            yield found


def seeded(found: Iterator[Values], first: int, seeds: int | None) -> Iterator[Values]:
    """Each setting once, or with `seeds` seeds that count from `first`."""
    for values in found:
        if seeds is None:
            yield values
        else:
            yield from ({**values, "seed": first + number} for number in range(seeds))


def check_seeds(seeds: int | None, vary: Mapping[str, Varied]) -> None:
    """Seeds are counted here or listed in `vary`, not both."""
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds={seeds}: each setting is run at least once; leave it out for once.")
    if seeds is not None and "seed" in vary:
        raise InputError("seeds counts seeds, and `seed` is varied as well: keep one of the two.")


def _check(vary: Mapping[str, Varied], runs: int | None) -> None:
    if not vary:
        raise InputError(
            "nothing is varied: give values to try, such as vary={'lr': [1e-3, 1e-2]}, or --grid lr=1e-3,1e-2."
        )
    for name, how in vary.items():
        empty = isinstance(how, list | tuple | range) and not how
        if empty or not isinstance(how, list | tuple | range | Uniform | LogUniform | Choice | Jitter):
            raise InputError(
                f"vary[{name!r}] is {how!r}: give a list of values, or Uniform, LogUniform, Choice or Jitter of"
                " credent.sweeps. What stays the same goes into `fixed`."
            )
    drawn = [name for name, how in vary.items() if not isinstance(how, list | tuple | range)]
    if drawn and runs is None:
        raise InputError(f"{', '.join(drawn)}: drawn at random, so say how often: runs=20, or --runs 20.")
    if runs is not None and not drawn:
        raise InputError(
            f"runs={runs} counts random draws, and nothing is drawn: leave it out for the grid alone;"
            f" seeds={runs} would repeat each of its points."
        )
    if runs is not None and runs < 1:
        raise InputError(f"runs={runs}: at least one draw is needed.")


def _listed(how: Any) -> list[Any]:
    return list(how.values if isinstance(how, Jitter) else how)
