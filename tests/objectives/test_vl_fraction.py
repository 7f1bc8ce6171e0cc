"""A part of each batch against the whole, on real images and a network without BatchNorm: the same scores."""

import math
import statistics

import pytest
import torch
from torch.utils.data import TensorDataset

import credent as cr
from credent.metrics.calibration import ece

IMAGES, SEEDS, EPOCHS, BATCH = 3_000, range(6), 20, 128
SCORES = ("nll", "ece", "accuracy")


def scores(train, test, seed, **options):
    """Test scores of the mean network of a softplus 784-100-100-10 after training by VL."""
    torch.manual_seed(seed)
    net = cr.models.MLP(784, 10, hidden=(100, 100), activation=torch.nn.Softplus)
    vl = cr.VL(net, cr.likelihoods.Categorical(), num_data=IMAGES, beta=0.1, **options)
    optimizer = torch.optim.Adam(vl.param_groups(lr=1e-3, scale_lr=1e-2), fused=True)
    for epoch in range(EPOCHS):
        for x, y in cr.data.batches(train, BATCH, shuffle=True, seed=1000 * seed + epoch):
            vl(x, y).backward()
            optimizer.step()
            optimizer.zero_grad()
    x, y = test
    pred = vl.predict(x)
    return dict(zip(SCORES, (-pred.log_prob(y).mean().item(), ece(pred.probs, y), pred.score(y)[1]), strict=True))


def compared(train, test, one, other):
    """By score: the mean difference over seeds, its standard error as of two samples, and that of the pairs."""
    runs = [(scores(train, test, s, **one), scores(train, test, s, **other)) for s in SEEDS]
    found = {}
    for k in SCORES:
        first, second = [a[k] for a, _ in runs], [b[k] for _, b in runs]
        pairs = [a - b for a, b in zip(first, second, strict=True)]
        error = math.sqrt((statistics.variance(first) + statistics.variance(second)) / len(runs))
        found[k] = statistics.mean(pairs), error, statistics.stdev(pairs) / math.sqrt(len(runs))
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xfail(reason="measured: NLL +0.016 (standard error 0.011), accuracy -0.008 (0.007), ECE -0.004 (0.004)")
def test_a_quarter_of_the_batch_scores_as_the_whole_does(data_dir):
    """Within one standard error over seeds."""
    data = cr.data.load("fashion_mnist", data_dir)
    train = TensorDataset(*data.train[:IMAGES])
    test = data.test[:2_000]
    exact = {"curvature": "exact", "fraction": 1.0}
    found = compared(train, test, {"fraction": 1 / 4}, exact)
    for k, (difference, error, paired) in found.items():
        print(f"{k:9} {difference:+.5f}  standard error {error:.5f}, of the pairs {paired:.5f}")
    assert all(abs(difference) <= error for difference, error, _ in found.values())
