"""Which prior is my regulariser? The answer as a sentence, as a prior to go on with, and as a drawing.

    r(mu, nu) = KL(q || p) + constant    <=>    one A = log p serves all scales nu of the noise on a weight

The drawing has three panels: the penalty r over the mean mu, for several nu; the log-density A that each nu alone would
ask for, which lie on one another if there is a prior and fan out if there is none; and the prior's density beside the
Gaussian of the same variance, or why there is no prior. `penalties.prior_of` does the work.
[Wolinski, Charpiat, Ollivier 2022]

>>> print(equivalence(penalties.L1(2.0), penalties.Dirac))
It is a Laplace prior with mean 0 and standard deviation 0.7071; ...
>>> print(equivalence(penalties.L1(2.0), stats.norm))
No prior: it depends on the scale. ...
"""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from credent import penalties
from credent.errors import InputError
from credent.penalties.given import Given
from credent.penalties.noise import Family, Floats, noise_of
from credent.penalties.verdict import NoPrior
from credent.priors import Tabulated

if TYPE_CHECKING:  # matplotlib takes long to import, and many never draw
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
_KNOWN = {
    "Gaussian": stats.norm,
    "Laplace": stats.laplace,
    "logistic": stats.logistic,
    "hyperbolic secant": stats.hypsecant,
    "Cauchy": stats.cauchy,
}
_SIZE = (13.5, 4.6)  # inches
_SHOWN, _SHOWN_OF_DENSITY = 8.0, 6.0  # nats below the peak
_FAR = 5.0  # where r does not say how far to look
_POINTS = 801


@dataclass(frozen=True)
class Equivalence:
    """The answer for a penalty and the noise on the weights; print it for the verdict, `plot` it for the reasons."""

    penalty: Any
    family: Family
    answer: Tabulated | NoPrior

    @property
    def prior(self) -> Tabulated | None:
        """The prior, to be used wherever one is; None if there is none."""
        return self.answer if isinstance(self.answer, Tabulated) else None

    @property
    def shape(self) -> str | None:
        """The name of the prior's density, if it is a well-known one to within the error of the answer."""
        return _shape(self.answer) if isinstance(self.answer, Tabulated) else None

    def __str__(self) -> str:
        if isinstance(self.answer, NoPrior):
            return str(self.answer)
        what = f"a {self.shape} prior" if self.shape else "a prior with a shape of its own,"
        return (
            f"It is {what} with {_moments(self.answer)}; the density is known to within"
            f" {self.answer.relative_error:.1g} of its peak."
        )

    def summary(self) -> dict[str, Any]:
        """The answer in plain values; None stands for what is infinite or unknown."""
        if isinstance(self.answer, NoPrior):
            found: dict[str, Any] = {"reason": self.answer.reason, "evidence": _finite(self.answer.evidence)}
        else:
            p = self.answer
            numbers = {"mean": p.mean, "standard_deviation": p.standard_deviation, "relative_error": p.relative_error}
            found = {"shape": self.shape, **_finite(numbers)}
        return {"prior": self.prior is not None, "verdict": str(self), **found}

    def plot(self, path: str | Path) -> Path:
        """Draw to a file: .png, .svg or .pdf."""
        import matplotlib.style

        from credent.report.canvas import STYLE

        path = Path(path)
        if path.suffix.lower() not in FORMATS:
            raise InputError(
                f"plot({str(path)!r}): the file's name ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."
            )
        figure = self.figure()
        path.parent.mkdir(parents=True, exist_ok=True)
        undated: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        with matplotlib.style.context(["default", STYLE]):
            figure.savefig(path, dpi=150, facecolor="white", metadata=undated.get(path.suffix.lower()))
        return path

    def figure(self) -> "Figure":
        """The drawing as a matplotlib figure."""
        import matplotlib.style
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        from credent.report.canvas import STYLE, plain_ticks

        with matplotlib.style.context(["default", STYLE]):
            layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, wspace=0.04)
            figure = Figure(figsize=_SIZE, layout=layout)
            left, middle, right = figure.subplots(1, 3)
            self._draw_penalty(left)
            self._draw_log_priors(middle)
            self._draw_prior(right)
            for axes in (left, middle, right) if self.prior else (left, middle):
                plain_ticks(axes)
                axes.locator_params(nbins=6)
            figure.legend(
                handles=[line for axes in (middle, right) for line in axes.lines], loc="outside lower left", ncols=8
            )
            figure.suptitle(self._title(), x=0.012, ha="left", fontsize=15, fontweight="bold")
        return figure

    def _title(self) -> str:
        if isinstance(self.answer, NoPrior):
            return f"No prior: {self.answer.reason}"
        return f"{(self.shape or 'A').capitalize()} prior: {_moments(self.answer)}"

    def _scales(self) -> list[float]:
        """Those the answer looked at, or the fixed one, or one."""
        noise = noise_of(self.family)
        return list(self.answer.log_priors) or [1.0 if noise is None or noise.fixed is None else noise.fixed]

    def _span(self, nats: float = _SHOWN) -> tuple[float, float]:
        """Where to look: within some nats of the most probable weight."""
        if self.answer.log_priors:
            grid, values = self.answer.grid, next(iter(self.answer.log_priors.values()))
        else:
            nu = self._scales()[0]
            grid = np.linspace(-1, 1, _POINTS) * _FAR * max(1.0, 0.0 if noise_of(self.family) is None else nu)
            values = -Given(self.penalty).anywhere(grid, nu)
        shown = grid[values > np.nanmax(values[np.isfinite(values)]) - nats]
        return float(shown[0]), float(shown[-1])

    def _draw_penalty(self, axes: "Axes") -> None:
        given, mu = Given(self.penalty), np.linspace(*self._span(), _POINTS)
        _lines(axes, mu, {nu: given.anywhere(mu, nu or 1.0) for nu in self._scales()})
        axes.set(title="The penalty r", xlabel="mean μ of a weight", ylabel="nats")

    def _draw_log_priors(self, axes: "Axes") -> None:
        from credent.report.palette import light

        (low, high), (nu, *_) = self._span(), self._scales()
        agreement = "all ν agree" if self.prior else "each ν asks for another"
        title = f"Its log-density A: {agreement}" if len(self._scales()) > 1 else "The log-density A behind it"
        axes.set(title=title, xlabel="weight w", ylabel="nats")
        if self.answer.log_priors:
            seen = (self.answer.grid >= low) & (self.answer.grid <= high)
            x, found = self.answer.grid[seen], {nu: v[seen] for nu, v in self.answer.log_priors.items()}
        else:
            x = np.linspace(low, high, _POINTS)
            found = {nu: -Given(self.penalty).anywhere(x, nu)}
            axes.set(title="−r, which A must be on average over the noise", xlabel="mean μ of a weight")
        top = max(float(np.max(values)) for values in found.values())
        if isinstance(self.answer, NoPrior) and "mu" in self.answer.evidence:
            axes.axvline(self.answer.evidence["mu"], color=light("orange"), linestyle=":", label="r is too sharp here")
        _lines(axes, x, {nu: values - top for nu, values in found.items()})

    def _draw_prior(self, axes: "Axes") -> None:
        from credent.report.palette import LINE_STYLES, light

        if isinstance(self.answer, NoPrior):
            axes.set(title="The prior", xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.text(0, 0.95, f"None.\n\n{textwrap.fill(self.answer.because, 40)}", va="top", linespacing=1.5)
            return
        p, w = self.answer, np.linspace(*self._span(_SHOWN_OF_DENSITY), _POINTS)
        axes.fill_between(w, p.density(w), color=light("ink"), alpha=0.08)
        axes.plot(w, p.density(w), color=light("ink"), label="the prior")
        if math.isfinite(p.variance) and self.shape != "Gaussian":
            gaussian = stats.norm(p.mean, p.standard_deviation).pdf(w)
            axes.plot(
                w, gaussian, color=light("muted"), linestyle=LINE_STYLES[1], label="Gaussian of the same variance"
            )
        axes.set(title="The prior", xlabel="weight w", ylabel="density", ylim=(0, None))


def equivalence(penalty: Any, family: Family) -> Equivalence:
    """Which prior a penalty is, for weights with this noise: `penalties.prior_of` with words and a drawing.

    `penalty` is a function r(mu, sigma) of arrays or a named one such as `penalties.L2(0.5)`; `family` is a scipy
    distribution, unfrozen if the scale is learnt, frozen if it is fixed, or `penalties.Dirac` for no noise.
    """
    return Equivalence(penalty, family, penalties.prior_of(penalty, family))


def _lines(axes: "Axes", x: Floats, by_scale: Mapping[float, Floats]) -> None:
    """One line for each scale, narrower and narrower, so that lines on one another all show."""
    from credent.report.palette import SERIES, light

    for number, (nu, y) in enumerate(by_scale.items()):
        width = 1.8 + 1.7 * (len(by_scale) - 1 - number)
        label = f"ν = {nu:.3g}" if nu else "no noise"
        axes.plot(x, y, color=light(SERIES[number % len(SERIES)]), linewidth=width, label=label)


def _shape(prior: Tabulated) -> str | None:
    """The known law of the same middle and peak that is nearest, if it is as near as the error allows."""
    if prior.relative_error > 0.02:
        return None
    middle = prior.mean if math.isfinite(prior.mean) else _mode(prior)
    peak = max(prior.peak, float(prior.density(np.array([middle]))[0]))
    far = {}
    with np.errstate(over="ignore"):  # 1 / cosh
        for name, law in _KNOWN.items():
            known = law(middle, float(law.pdf(0)) / peak)
            far[name] = float(np.max(np.abs(known.pdf(prior.points) - prior.density(prior.points)))) / prior.peak
    best = min(far, key=lambda name: far[name])
    return best if far[best] <= 2 * prior.relative_error + 1e-4 else None


def _mode(prior: Tabulated) -> float:
    """The top of the parabola through log p at the three highest points."""
    at = int(np.argmax(prior.density(prior.points)[1:-1])) + 1
    x = prior.points[at - 1 : at + 2]
    curvature, slope, _ = np.polyfit(x - x[1], prior.log_density(x), 2)
    return float(x[1] - slope / (2 * curvature))


def _moments(prior: Tabulated) -> str:
    if not math.isfinite(prior.variance):
        return "infinite variance"
    mean = prior.mean if abs(prior.mean) > 1e-6 * prior.standard_deviation else 0.0
    return f"mean {mean:.4g} and standard deviation {prior.standard_deviation:.4g}"


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
