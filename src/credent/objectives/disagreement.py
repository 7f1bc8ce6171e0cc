"""When drawn weights and the mean network say different things.

A posterior that was fitted by an expansion about its mean holds where the expansion does. If the predictions of drawn
weights differ from the mean network's by more than the draws' own noise, q reaches beyond that:

    mean (drawn - mean)^2  >  4 mean (spread^2 / S),          and by an amount that people would mind.
"""

import warnings

import torch

from credent.predictive import GaussianPredictive, Predictive

_MATERIAL = 0.02  # a gap of mean probabilities, or of means in predictive deviations
_BEYOND_NOISE = 4.0


def warn_of_disagreement(drawn: Predictive, mean: Predictive) -> None:
    """Warn if the average over draws is not what the mean network predicts."""
    gap = (drawn.mean - mean.mean).abs()
    if isinstance(drawn, GaussianPredictive):
        spread, unit, draws = drawn.epistemic, drawn.stddev, len(drawn.means)
    else:
        spread, unit, draws = drawn.stddev, torch.ones_like(gap), drawn.num_draws
    if draws < 2:
        return  # one draw does not say how far draws are apart
    beyond = gap.square().mean() > _BEYOND_NOISE * spread.square().mean() / draws
    if (gap / unit).mean() > _MATERIAL and beyond:
        warnings.warn(
            f"drawn weights and the mean network disagree: their predictions differ by {float(gap.mean()):.2g} on"
            " average, more than the draws' noise. The scales reach beyond the region where VL's quadratic holds:"
            " predict(x, how='linearised') or how='mean'.",
            stacklevel=3,
        )
