"""Plots draw numbers they are given, compute none of their own, and explain themselves in their captions."""

from credent.report.plots.band import predictive_band
from credent.report.plots.curves import curves, risk_coverage
from credent.report.plots.dots import dot_plot
from credent.report.plots.images import image_grid
from credent.report.plots.landscape import landscape
from credent.report.plots.rates import range_curve
from credent.report.plots.reliability import reliability_diagram
from credent.report.plots.robust import robust_regions
from credent.report.plots.robustness import robustness_curve
from credent.report.plots.scatter import scatter
from credent.report.plots.separation import separation
from credent.report.plots.training import training_curves

__all__ = [
    "curves",
    "dot_plot",
    "image_grid",
    "landscape",
    "predictive_band",
    "range_curve",
    "reliability_diagram",
    "risk_coverage",
    "robust_regions",
    "robustness_curve",
    "scatter",
    "separation",
    "training_curves",
]
