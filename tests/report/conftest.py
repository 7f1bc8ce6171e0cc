import numpy as np
import pytest

from credent.report import Estimate, Note, Page, Section, comparison_page, plots, run_page


@pytest.fixture(scope="session")
def run() -> Page:
    """A classification run with every plot, long names, a missing score and markup where text belongs."""
    rng = np.random.default_rng(0)
    lower = np.linspace(0, 0.9, 10)
    history = [
        {"step": s, "nll": 2 / s, "kl": 60_000.0 / s, "val_nll": 2.2 / s, "val_accuracy": 1 - 1 / s}
        for s in range(1, 900)
    ]
    shares = np.linspace(0.01, 1, 50)
    figures = [
        plots.training_curves(history),
        plots.reliability_diagram(lower, lower + 0.1, lower + 0.05, lower, np.arange(10), ece=0.05),
        plots.risk_coverage(
            {"a method with a rather long name": (shares, 0.1 * shares**2), "b": (shares, 0.1 * shares)}
        ),
        plots.separation(
            rng.gamma(1, 0.2, 500), {"letters <b>": rng.normal(1.5, 0.2, 500)}, auroc={"letters <b>": 0.97}
        ),
        plots.predictive_band(shares, shares, 0.1 * shares, 0.2 * shares, [0.5], [0.4]),
        plots.image_grid(
            rng.random((5, 8, 8)),
            rng.dirichlet(np.ones(4), 5),
            [0, 1, 2, 3, 0],
            ["cat", "dog", "a very long name", "<i>"],
        ),
    ]
    scores = {"accuracy": 0.98, "nll": 0.0812, "ece": float("nan"), "my_score": None}
    return run_page(
        "<script>alert(1)</script>", scores, figures, {"prior": "Gaussian & friends", "seed": 0}, subtitle="s" * 90
    )


@pytest.fixture(scope="session")
def comparison() -> Page:
    """Three methods by two seeds' worth of scores, one missing, with published values."""
    runs = {
        "VI": {"accuracy": Estimate(0.9801, 0.0005), "nll": Estimate(0.074, 0.002), "seconds": 330.0},
        "a method with a name that does not fit anywhere": {
            "accuracy": Estimate(0.9797, 0.0007),
            "nll": None,
            "seconds": 205.0,
        },
        "MAP": {"accuracy": 0.971, "nll": 0.116, "seconds": 88.0},
    }
    page = comparison_page("Three methods", runs, published={"VI": {"accuracy": 0.9815}})
    return Page(
        page.title, "with a note", page.facts, (*page.sections, Section("Notes", (Note("One."), Note("Two.")))), "end"
    )
