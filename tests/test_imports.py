"""Imports point down only: every room knows the rooms below it and none above or beside it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "credent"
LEVEL = {
    **dict.fromkeys(
        (
            "errors",
            "files",
            "noise",
            "network",
            "layout",
            "predictive",
            "likelihoods",
            "smooth",
            "neurons",
            "quick_normal",
            "native",
            "tail",
            "dropout",
        ),
        0,
    ),
    **dict.fromkeys(("families", "penalty", "cells"), 1),
    "priors": 2,
    **dict.fromkeys(("penalties", "predict", "calibrate", "fisher"), 3),
    **dict.fromkeys(("objectives", "samplers", "attacks"), 4),
    **dict.fromkeys(("training", "optim"), 5),
    **dict.fromkeys(("recipe", "evaluation", "bandits"), 6),
    **dict.fromkeys(("pictures", "equivalence", "sweeps"), 7),
    **dict.fromkeys(("demo", "papers"), 8),
    "cli": 9,
}
BESIDE = {"metrics", "data", "models", "report"}  # they import nothing of ours but errors; whoever wants may use them


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms named by import statements that run; imports for type checkers only are no dependency."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "credent":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("credent.")}
    return found - {room(path), "__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path):
    here = room(path)
    if here in ("__init__", "__main__"):
        return
    for other in imported_rooms(path):
        if here in BESIDE:
            assert other == "errors", f"{here} stands beside the tower and imports {other}"
        else:
            assert other in BESIDE or LEVEL[other] <= LEVEL[here], f"{here} is below {other}"


def test_the_walk_sees_what_it_should(tmp_path):
    file = SOURCE / "families" / "gaussian.py"
    assert {"layout", "noise", "errors"} <= imported_rooms(file)
    assert "priors" not in imported_rooms(file)
    assert "recipe" in imported_rooms(SOURCE / "cli" / "common.py")
