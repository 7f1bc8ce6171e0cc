"""Whether scales hold, by the ones that weights are drawn with."""

import pytest
import torch
from torch import nn

import credent as cr


@pytest.mark.parametrize("prior", [cr.priors.Gaussian(), cr.priors.SelfStabilizing()])
@pytest.mark.parametrize("family", [cr.families.Gaussian(1.0), cr.families.Radial(1.0)])
def test_the_ratio_is_of_the_posterior_s_standard_deviations(prior, family):
    if isinstance(prior, cr.priors.SelfStabilizing) and isinstance(family, cr.families.Radial):
        pytest.skip("multiplies a Gaussian")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    bnn = cr.VI(net, cr.likelihoods.Categorical(), prior, num_data=10, family=family)
    watch = cr.training.ScaleRatio(bnn)
    before = bnn.posterior.stddev()
    with torch.no_grad():
        bnn.posterior.scales.rho.add_(1.0)
    after = bnn.posterior.stddev()
    expected = torch.cat([(after[k] / before[k]).flatten() for k in before]).mean().item()
    assert watch(bnn) == {"scale_ratio": pytest.approx(expected, rel=1e-12)}
    assert (expected < 2.7) == isinstance(prior, cr.priors.SelfStabilizing)
