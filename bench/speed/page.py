"""The page of a run: what was reached, each race as a table and a picture, growth, and where the numbers come from."""

from typing import Any

from bench.speed.limits import reached
from credent.report import Card, Column, Figure, Note, Page, Section, Table
from credent.report.plots import curves, dot_plot

TITLES = {
    "vi": "Variational inference: a training step",
    "vl": "Variational Laplace: a training step (softplus networks)",
    "samplers": "Langevin samplers: a step",
    "prediction": "Prediction averaged over draws",
    "laplace": "Prediction with a random last layer",
    "fisher": "Trace of the Fisher information",
    "kl": "KL from many draws: a training step",
}
OURS = {
    "vi": "credent",
    "samplers": "credent SGLD",
    "prediction": "credent",
    "laplace": "credent, random head, sampled",
    "fisher": "credent",
}
READ = (
    "Every contender had its turn once a round, in shuffled order. Ratios are medians over rounds of the time over "
    "that of the base in the same round; 10-90 % is their range over rounds. Rounds are those of several processes, "
    "the heats, because where memory happens to lie moves all rounds of a process by a few percent; the interval is "
    "the bootstrap's 95 % of the median, of heats and of their rounds; that of a single heat knows only what differs "
    "within a process, and of three or four rounds it is their range. Memory is how far a process of its own grew at "
    "its peak. Differences below about 5 % are noise on a machine that does other things as well."
)


def page(found: dict[str, Any]) -> Page:
    """Everything of a results file."""
    rows = reached(found["groups"])
    held = sum(row[-1] == "reached" for row in rows)
    columns = ("work", "contender", "over", "network", "lower end", "must reach", "verdict")
    parts = [Section("How to read", (Note(READ),))]
    if rows:
        parts.append(Section("Must reach", (Table("Lower end of the interval", _columns(*columns), tuple(rows)),)))
    parts.append(Section("Where another library is faster", (_faster(found["groups"]),)))
    parts += [
        Section(f"{TITLES[group]}: {network}", _race(contest))
        for group, networks in found["groups"].items()
        for network, contest in networks.items()
    ]
    parts += [Section(f"Growth with {axis}", _growth(each)) for axis, each in found.get("growth", {}).items()]
    parts.append(Section("Where the numbers come from", _provenance(found)))
    facts = (Card("Limits reached", f"{held} of {len(rows)}", meaning="The table below has the numbers."),)
    return Page(
        "Speed and memory beside other libraries", "", facts, tuple(parts), f"credent {found['machine']['credent']}"
    )


def faster(groups: dict[str, Any]) -> list[tuple[str, str, str, float, float, str]]:
    """Rows: work, network, library, its ratio, credent's, and whether their intervals are apart."""
    rows = []
    for group, ours in OURS.items():
        for network, contest in groups.get(group, {}).items():
            if ours not in contest["contenders"]:
                continue
            base = contest["bases"][0]
            mine = contest["contenders"][ours]["over"][base]
            for name, each in contest["contenders"].items():
                other = each["over"][base]
                if name.startswith("credent") or name in contest["bases"] or other["median"] >= mine["median"]:
                    continue
                apart = "yes" if other["interval"][1] < mine["interval"][0] else "within noise"
                rows.append((group, network, name, other["median"], mine["median"], apart))
    return rows


def _faster(groups: dict[str, Any]) -> Table | Note:
    rows = faster(groups)
    if not rows:
        return Note("Nowhere in this run.")
    return Table(
        "By the median", _columns("work", "network", "library", "its ratio", "credent's", "faster"), tuple(rows)
    )


def _race(contest: dict[str, Any]) -> tuple[Any, ...]:
    bases = contest["bases"]
    if not bases:
        return (Note("The plain network itself did not run."),)
    first = bases[0]
    ordered = sorted(contest["contenders"].items(), key=lambda item: item[1]["over"][first]["median"])
    columns = (
        Column("contender"),
        Column("time", "ms"),
        Column(f"over {first}", "", "lower"),
        Column("10-90 %"),
        Column("interval"),
        *(Column(f"over {base}") for base in bases[1:]),
        Column("peak memory", "MiB"),
    )
    rows = tuple(
        (
            name,
            each["milliseconds"],
            round(each["over"][first]["median"], 3),
            f"{each['over'][first]['low']:.2f}-{each['over'][first]['high']:.2f}",
            "{:.3f}-{:.3f}".format(*each["over"][first]["interval"]),
            *(round(each["over"][base]["median"], 3) for base in bases[1:]),
            each["memory"] / 2**20 if each.get("memory") else None,
        )
        for name, each in ordered
    )
    one = ordered[0][1]["over"][first]
    heats = "one heat" if len(one["heats"]) == 1 else f"{len(one['heats'])} heats"
    parts: list[Any] = [Table(f"{one['rounds']} rounds in {heats}; fastest first", columns, rows)]
    values = {name: each["over"][first]["median"] for name, each in ordered}
    parts.append(dot_plot(f"Time over {first}", values, "", "lower", caption="Medians over rounds; 1 is the base."))
    if contest["missing"]:
        parts.append(Table("Did not run", _columns("contender", "why"), tuple(contest["missing"].items())))
    return tuple(parts)


def _growth(each: dict[str, Any]) -> tuple[Any, ...]:
    exponents = tuple(
        (
            name,
            round(e["exponent"], 3),
            round(e["beyond plain"], 3),
            round(e["error"], 3),
            "yes" if e["faster"] else "no",
        )
        for name, e in each["exponents"].items()
    )
    columns = _columns(
        "work", "exponent of its time", "exponent of its ratio to plain", "standard error", "grows faster"
    )
    parts: list[Any] = [Table("time = a size^b", columns, exponents)]
    if each["rows"]:
        parts.append(_ratio_curves(each))
    if each["left out"]:
        parts.append(Table("Left out", _columns("size", "why"), tuple(each["left out"].items())))
    return tuple(parts)


def _ratio_curves(each: dict[str, Any]) -> Figure:
    rows = each["rows"]
    named = {
        name: ([row["size"] for row in rows], [row["ratios"][name] for row in rows])
        for name in rows[0]["ratios"]
        if not name.startswith("plain")
    }
    caption = "A flat or falling line grows no faster than the plain network does."
    return curves("Cost over the plain network's", named, each["axis"], "time over plain", caption)


def _provenance(found: dict[str, Any]) -> tuple[Any, ...]:
    machine = {k: v for k, v in found["machine"].items() if k != "peers"}
    peers = tuple((name, version or "not installed") for name, version in found["machine"]["peers"].items())
    races = {f"{TITLES[group]}: {name}": each for group, by in found["groups"].items() for name, each in by.items()}
    races |= {f"Growth with {axis}": each for axis, each in found.get("growth", {}).items()}
    parts = [
        Table("Machine of the last race", _columns("what", "value"), tuple((k, str(v)) for k, v in machine.items())),
        Table(
            "What each race was run with",
            _columns("race", "commit", "CPU", "threads"),
            tuple((race, *map(str, each["raced"].values())) for race, each in races.items()),
        ),
        Table("Peers", _columns("package", "version"), peers),
    ]
    if found["skipped"]:
        parts.append(Table("Peers that do not import", _columns("peer", "why"), tuple(found["skipped"].items())))
    return tuple(parts)


def _columns(*labels: str) -> tuple[Column, ...]:
    return tuple(Column(label) for label in labels)
