"""Variational Laplace: the evidence lower bound of a mean-field Gaussian without sampling weights.

    loss = -(1/B) sum_n log p(y_n | x_n, mu)  +  1/2 sum_i sigma_i^2 F_ii  +  (beta / N) KL(q || p)

The expected log-likelihood is expanded to second order about the means, with the Fisher information per datum F in the
place of minus the Hessian (`objectives.curvature` says how it is estimated). So the middle term is a penalty on squared
gradients with a learnt weight for each parameter, and it draws training to broad modes. At the optimum
sigma_i^2 = 1 / (1 / s_i^2 + N F_ii / beta) under a Gaussian prior of variance s_i^2.  [Unlu & Aitchison 2021]

>>> net = nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(0.0)
>>> vl = VL(net, likelihoods.Gaussian(scale=1.0), priors.Gaussian(scale=1.0), num_data=4, curvature="exact")
>>> vl.posterior.stddev()["weight"]                       # exp(log s - 3)
tensor([[0.0498]])
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from credent import likelihoods, priors
from credent.errors import InputError
from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.families.gaussian import GaussianPosterior
from credent.layout import Random
from credent.network import take
from credent.noise import Noise
from credent.objectives import curvature as curvatures
from credent.objectives.curvature import Score, gradients
from credent.objectives.disagreement import warn_of_disagreement
from credent.objectives.expansion import refuse, spreads, warn_of_wrong_curvature
from credent.objectives.objective import Beta, Objective
from credent.objectives.second_derivatives import fast_second_derivatives
from credent.penalty import Description
from credent.predict import How
from credent.predictive import Predictive
from credent.smooth import watched

Curvature = Literal["finite_difference", "exact", "hessian"]
Labels = Literal["model", "moving", "empirical"]

_HESSIAN_LIMIT = 5_000  # parameters, at one backward pass for each


class VL(Objective):
    """Learn q(w) by the second-order expansion of the evidence lower bound.

    `curvature="finite_difference"` costs little more than plain training and takes any network; behind ReLU it measures
    how the gradient changes over a finite step, which counts the kinks that the step crosses. `"exact"` differentiates
    twice, and wants smooth activations (`credent.smooth`). `"hessian"` takes the Hessian of the observed labels in the
    place of the Fisher information, of the whole batch: the paper's eq. 20, which breaks where that curves the wrong
    way, and says so.

    The curvature is estimated on a random `fraction` of each `every`-th training batch, and counts `every` times there.
    By default `every` is 2, and the fraction `every` sixteenths, or eighths where BatchNorm compares the rows. A
    fraction that is given alone is one of every batch, and so is the whole batch of `"hessian"`.

    `labels="moving"` draws scores with the covariance of drawn labels' that move with the network, so that the gradient
    is that of the bound; `"model"` draws labels and holds them while the gradient is taken, as the paper does;
    `"empirical"` takes the observed labels, for comparison: the empirical Fisher, which is biased.
    """

    def __init__(
        self,
        net: nn.Module,
        likelihood: likelihoods.Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        beta: Beta = 1.0,
        curvature: Curvature = "finite_difference",
        fraction: float | None = None,
        every: int | None = None,
        labels: Labels = "moving",
        random: Random = None,
    ) -> None:
        super().__init__(net, likelihood, prior, num_data, beta, random)
        if curvature not in ("finite_difference", "exact", "hessian"):
            raise InputError(f"VL(curvature={curvature!r}): write 'finite_difference', 'exact' or 'hessian'.")
        if labels not in ("model", "moving", "empirical"):
            raise InputError(
                f"VL(labels={labels!r}): 'model' draws them, 'moving' draws scores that move with the network,"
                " 'empirical' takes the observed labels."
            )
        normed = any(isinstance(m, _BatchNorm) for m in net.modules())
        if every is None:
            every = 2 if fraction is None and curvature != "hessian" else 1
        if not (isinstance(every, int) and every >= 1):
            raise InputError(
                f"VL(every={every!r}): the curvature of each every-th batch, so a whole number, 1 or more."
            )
        if fraction is None:
            fraction = min(1.0, every * (1 / 8 if normed else 1 / 16))
        if not 0 < fraction <= 1:
            raise InputError(f"VL(fraction={fraction}): the part of a batch for the curvature, above 0 and up to 1.")
        if (dtype := self.layout.first().dtype) not in (torch.float32, torch.float64):
            raise InputError(
                f"VL needs curvature, which {dtype} is too coarse for: net.float(). Under autocast the network stays"
                " float32, and the curvature is computed in it."
            )
        if curvature == "hessian" and self.layout.num_params > _HESSIAN_LIMIT:
            raise InputError(
                f"VL(curvature='hessian') takes a backward pass for each of {self.layout.num_params:,} parameters and"
                f" is for networks of at most {_HESSIAN_LIMIT:,}: the others want curvature='finite_difference'."
            )
        first = {k: s * math.exp(-3) for k, s in spreads(self.penalty, self.layout).items()}
        self.q = self.penalty.sampled(GaussianPosterior(self.layout, first))
        if isinstance(self.penalty, priors.Prior) and self.q.kl(self.penalty) is None:
            raise InputError(
                f"VL draws no weights, so it needs the expectation of log p(w) in closed form, and {self.described} has"
                " none: take priors.Gaussian or priors.Laplace, or train with VI."
            )
        self.curvature: Curvature = curvature
        self.fraction, self.every = fraction, every
        self.labels: Labels = labels
        self.noise = Noise()
        self._fewest = 2 if normed else 1  # it needs two to compare
        self._checked = self._warned = False
        self._standard = DiagonalGaussian(dict.fromkeys(self.layout.names, 0.0), dict.fromkeys(self.layout.names, 1.0))

    @property
    def posterior(self) -> GaussianPosterior:
        """q(w)."""
        return self.q

    @property
    def how(self) -> How:
        """The mean network for classes, the linearised one for regression (docs/variational-laplace.md says why)."""
        return "linearised" if self.likelihood.keeps_draws else "mean"

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch at the means with the expected rise of its loss around them, r(q), and the outputs."""
        if self.curvature == "finite_difference":
            return self._with_finite_difference(x, y)
        with self.q.cached():
            return self._with_derivatives(x, y)

    def _with_finite_difference(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        counts = self._counts()
        with _in_full(y):  # and first, so that no activations wait meanwhile
            attach = self._by_finite_difference(x, y, self._rows(y)) if counts else None
        outputs = self.network.mean(x)
        nll = self.likelihood.mean_nll(outputs, y)
        with _in_full(y):  # last, so that these gradients come first, and the network's are added to them in place
            rise, kl = (None, None) if attach is None else attach()
            penalty = self.penalty(self.q) if kl is None or self._gaussian is None else kl
        return self._flat(nll) if rise is None else torch.add(nll, rise, alpha=counts), penalty, outputs

    def _with_derivatives(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        counts = self._counts()
        twice = fast_second_derivatives() if counts and self.curvature == "exact" else nullcontext()
        with self._first_forward(), torch.enable_grad(), twice:
            outputs = self.network.mean(x)
            nll = self.likelihood.mean_nll(outputs, y)
        if not counts:
            return self._flat(nll), self.penalty(self.q), outputs
        if not bool(nll.isfinite()):
            return nll, self.penalty(self.q), outputs  # whoever trains sees it, and can say where it comes from
        with _in_full(y):
            if self.curvature == "exact":
                rows = self._rows(y)
                shared = isinstance(rows, slice) and outputs.dtype == self.layout.first().dtype  # autocast's is coarser
                rise, diagonal = self._by_double_backward(x, y, rows, outputs if shared else None)
            else:
                rise, diagonal = self._by_hessian(nll)
            by_scales = curvatures.pull(self.q.scales.log_sigma(), diagonal)
            return nll + counts * (rise + by_scales), self.penalty(self.q), outputs

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Within: every batch has its curvature, once."""
        every, self.every = self.every, 1
        try:
            yield
        finally:
            self.every = every

    def _counts(self) -> int:
        """How often the curvature of this batch counts: for those between, too, in training, which have none."""
        if not self.training:
            return 1
        return 0 if self._seen.batches % self.every else self.every

    def _flat(self, nll: Tensor) -> Tensor:
        """The loss of a batch without curvature; scales have a gradient of zero where the penalty gives them none.

        Optimisers, and processes that train together, wait for it.
        """
        return nll if self._gaussian is not None else nll + 0 * self.q.scales.log_sigma().sum()

    @property
    def _gaussian(self) -> DiagonalGaussian | None:
        return self.penalty.gaussian if isinstance(self.penalty, priors.Prior) else None

    def curvature_error(self, x: Any, y: Tensor) -> float:
        """Relative error of the finite difference on this batch: |gradient - exact gradient| / |exact gradient|.

        Both are gradients of the curvature term by the means, for the same labels; activations must be smooth.
        """
        means, state = list(self.layout.params().values()), self.noise.get_extra_state()
        with torch.enable_grad(), self.network.frozen_statistics(), watched(self.network) as watch:
            self.network.mean(x)
        refuse(watch, "curvature_error compares with the exact way, and that", "VL(credent.smooth(net), ...)")
        found = []
        for way in (lambda *given: self._by_finite_difference(*given)(), self._by_double_backward):
            self.noise.set_extra_state(state)
            found.append(torch.cat([g.flatten() for g in gradients(way(x, y, slice(None))[0], means)]))
        self.noise.set_extra_state(state)
        return float((found[0] - found[1]).norm() / found[1].norm())

    def _by_hessian(self, nll: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            rise, diagonal = curvatures.hessian(self.layout, self.q.scales.values(), nll)
        if not self._warned:
            over = float(self.beta(self._seen.batches) if callable(self.beta) else self.beta) / self.num_data
            spread = spreads(self.penalty, self.layout)
            self._warned = warn_of_wrong_curvature(self.layout.unflatten(diagonal), spread, over)
        return rise, diagonal

    def _by_finite_difference(self, x: Any, y: Tensor, rows: Tensor | slice) -> Callable[[], tuple[Tensor, Tensor]]:
        laid = (self._gaussian or self._standard).on(self.layout)
        with self.network.frozen_statistics():
            return curvatures.finite_difference(
                self.network, laid, self.q.scales.log_sigma(), self.likelihood, take(x, rows), self._score(y[rows])
            )

    def _by_double_backward(
        self, x: Any, y: Tensor, rows: Tensor | slice, outputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            if outputs is None:
                with self.network.frozen_statistics(), fast_second_derivatives():
                    outputs = self.network.mean(take(x, rows))
            return curvatures.exact(self.layout, self.q.scales.values(), outputs, self._score(y[rows]))

    def _score(self, y: Tensor) -> Score:
        generator = self.noise.generator(y.device)
        if self.labels == "empirical":
            return lambda f: self.likelihood.score_at(f, y)
        if self.labels == "moving":
            return lambda f: self.likelihood.score(f, generator)
        return lambda f: self.likelihood.score_at(f, self._drawn_labels(f, generator))

    def _drawn_labels(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Of outputs that are not finite, which nothing can be drawn from, any: the loss is not finite, either."""
        return self.likelihood.draw(f if bool(f.isfinite().all()) else torch.zeros_like(f), generator)

    def _rows(self, y: Tensor) -> Tensor | slice:
        """Which rows of the batch the curvature is estimated on."""
        size = max(self._fewest, round(self.fraction * len(y)))
        if self.curvature == "hessian" or size >= len(y):
            return slice(None)
        return torch.randperm(len(y), generator=self.noise.generator(y.device), device=y.device)[:size]

    @contextmanager
    def _first_forward(self) -> Iterator[None]:
        """The first forward is watched where curvature is differentiated: kinks and dropout have no place there."""
        if self._checked or self.curvature == "finite_difference":
            yield
            return
        with watched(self.network) as watch:
            yield
        refuse(watch, f"VL(curvature={self.curvature!r})")
        self._checked = self.training  # dropout shows itself in training only

    def predict(self, x: Any, samples: int | None = 32, **options: Any) -> Predictive:
        """What the posterior says about `x`.

        `how="mean"` is the paper's choice and the default for classes; the weights have no part in its doubt.
        `how="linearised"`, the default for regression, has one, and fits the expansion. `how="sampled"` runs the
        network at drawn weights, where the quadratic that VL fitted may no longer hold; a warning says when it
        disagrees by more than noise.
        """
        how = options.setdefault("how", self.how)
        if how == "sampled" and self._normalises and self._recent:
            options.setdefault("statistics", list(self._recent))  # the mean network is compared under the same
        if how == "linearised" and self._normalises:
            warnings.warn(
                "BatchNorm follows random weights: training normalised with batches, which cancel some changes of these"
                " weights, and the linearised network normalises with fixed statistics, which do not. What it says it"
                " does not know is then too much: take how='mean', or random= for the weights after the last norm.",
                stacklevel=2,
            )
        pred = super().predict(x, samples, **options)
        if how == "sampled" and not options.get("dropout"):  # masks disagree by themselves
            warn_of_disagreement(pred, super().predict(x, 1, **(options | {"how": "mean"})))
        return pred


def _in_full(y: Tensor) -> AbstractContextManager[None]:
    """Autocast is too coarse for curvature."""
    return torch.autocast(y.device.type, enabled=False)
