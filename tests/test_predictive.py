import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from credent.errors import InputError
from credent.likelihoods import Categorical
from credent.predictive import BinaryPredictive, ClassPredictive, GaussianPredictive


def classes(probs):
    return ClassPredictive.average(p.log() for p in probs)


def binaries(probs):
    return BinaryPredictive.average(p.logit() for p in probs)


def class_draws(draws=6, n=30, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(draws, n, classes, generator=g, dtype=torch.float64)).softmax(-1)


def binary_draws(draws=6, n=30, outputs=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(draws, n, outputs, generator=g, dtype=torch.float64)).sigmoid()


def mixture(draws=5, n=4, outputs=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn(draws, n, outputs, generator=g, dtype=torch.float64)
    scales = 0.2 + torch.rand(draws, n, outputs, generator=g, dtype=torch.float64)
    return GaussianPredictive(means, scales)


# -- classes ----------------------------------------------------------------------------------------------------------


def test_class_moments_against_numpy():
    draws = class_draws()
    pred = classes(iter(draws))
    assert pred.probs.numpy() == pytest.approx(draws.numpy().mean(0), rel=1e-12)
    assert torch.equal(pred.mean, pred.probs)
    assert pred.stddev.numpy() == pytest.approx(draws.numpy().std(0), rel=1e-9)
    assert pred.num_draws == 6
    assert torch.equal(pred.label, torch.from_numpy(draws.numpy().mean(0).argmax(1)))


def test_class_entropies_against_scipy():
    draws = class_draws()
    pred = classes(draws)
    entropy = stats.entropy(draws.numpy().mean(0), axis=-1)
    aleatoric = stats.entropy(draws.numpy(), axis=-1).mean(0)
    assert pred.entropy.numpy() == pytest.approx(entropy, rel=1e-12)
    assert pred.aleatoric.numpy() == pytest.approx(aleatoric, rel=1e-12)
    assert pred.mutual_information.numpy() == pytest.approx(entropy - aleatoric, rel=1e-9)
    assert torch.equal(pred.epistemic, pred.mutual_information)
    assert (pred.epistemic + pred.aleatoric).numpy() == pytest.approx(entropy, rel=1e-12)


def test_draws_that_are_certain_and_disagree_know_ln_2_about_each_other():
    pred = classes([torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])])
    assert pred.mutual_information.item() == pytest.approx(math.log(2))
    assert pred.entropy.item() == pytest.approx(math.log(2))
    assert pred.aleatoric.item() == 0
    assert pred.stddev.tolist() == [[0.5, 0.5]]
    binary = binaries([torch.tensor([[1.0]]), torch.tensor([[0.0]])])
    assert binary.mutual_information.item() == pytest.approx(math.log(2))
    assert binary.aleatoric.item() == 0


def test_draws_that_agree_on_even_odds_are_all_aleatoric():
    pred = classes([torch.tensor([[0.5, 0.5]])] * 3)
    assert pred.aleatoric.item() == pytest.approx(math.log(2))
    assert pred.mutual_information.item() == pytest.approx(0, abs=1e-7)
    assert (pred.stddev == 0).all()


def test_information_is_never_negative_by_rounding():
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 10, generator=g) + 1e-4 * torch.randn(7, 200, 10, generator=g)
    for pred in (classes(logits.softmax(-1)), binaries(logits.sigmoid())):
        assert (pred.entropy < pred.aleatoric).any()  # in float32, though not in truth
        assert (pred.mutual_information >= 0).all()


def test_class_log_prob_and_score_by_hand():
    pred = classes([torch.tensor([[0.8, 0.2], [0.5, 0.5]]), torch.tensor([[0.2, 0.8], [0.25, 0.75]])])
    assert pred.log_prob(torch.tensor([1, 0])).tolist() == pytest.approx([math.log(0.5), math.log(0.375)])

    # labels: the first of two equal ones, then 1
    assert pred.label.tolist() == [0, 1]
    assert pred.score(torch.tensor([0, 1])) == ("accuracy", 1.0)
    assert pred.score(torch.tensor([0, 0])) == ("accuracy", 0.5)
    assert pred.score(torch.tensor([1, 0])) == ("accuracy", 0.0)


# -- yes or no --------------------------------------------------------------------------------------------------------


def test_binary_moments_and_entropies():
    draws = binary_draws()
    pred = binaries(iter(draws))
    p = draws.numpy()

    def entropy(q):
        return stats.entropy(np.stack([q, 1 - q]), axis=0)

    assert pred.probs.numpy() == pytest.approx(p.mean(0), rel=1e-12)
    assert torch.equal(pred.mean, pred.probs)
    assert pred.stddev.numpy() == pytest.approx(p.std(0), rel=1e-9)
    assert pred.entropy.numpy() == pytest.approx(entropy(p.mean(0)), rel=1e-12)
    assert pred.aleatoric.numpy() == pytest.approx(entropy(p).mean(0), rel=1e-12)
    assert (pred.epistemic + pred.aleatoric).numpy() == pytest.approx(pred.entropy.numpy(), rel=1e-12)
    y = (torch.rand(30, 2, generator=torch.Generator().manual_seed(2)) < 0.5).long()
    assert pred.log_prob(y).numpy() == pytest.approx(stats.bernoulli.logpmf(y.numpy(), p.mean(0)).sum(1), rel=1e-9)


def test_binary_is_two_classes():
    p = binary_draws(outputs=1)
    two = classes(torch.cat([1 - p, p], -1))
    one = binaries(p)
    for name in ("entropy", "aleatoric", "mutual_information"):
        assert getattr(one, name).squeeze(-1).numpy() == pytest.approx(getattr(two, name).numpy(), rel=1e-9)


def test_binary_certainty_is_not_a_number_that_spreads():
    pred = binaries([torch.tensor([[0.0, 1.0]])])
    assert pred.entropy.tolist() == [[0.0, 0.0]]
    assert pred.log_prob(torch.tensor([[0.0, 1.0]])).tolist() == [0.0]
    assert pred.log_prob(torch.tensor([[1.0, 0.0]])).tolist() == [-math.inf]


def test_binary_score_is_the_share_of_right_answers():
    pred = binaries([torch.tensor([[0.1, 0.9], [0.4, 0.6]])])
    assert pred.score(torch.tensor([[0, 1], [0, 0]])) == ("accuracy", 0.75)
    assert pred.score(torch.tensor([[True, False], [True, True]])) == ("accuracy", 0.25)


# -- real targets -----------------------------------------------------------------------------------------------------


def test_gaussian_moments():
    pred = mixture()
    m, s = pred.means.numpy(), pred.scales.numpy()
    assert pred.mean.numpy() == pytest.approx(m.mean(0))
    assert pred.epistemic.numpy() == pytest.approx(m.std(0))
    assert pred.aleatoric.numpy() == pytest.approx(np.sqrt((s**2).mean(0)))
    assert pred.stddev.numpy() == pytest.approx(np.sqrt(pred.epistemic.numpy() ** 2 + pred.aleatoric.numpy() ** 2))
    rng = np.random.default_rng(0)
    component, n = rng.integers(5, size=100_000), 100_000
    drawn = m[component] + s[component] * rng.normal(size=(n, *m.shape[1:]))
    second = (drawn - pred.mean.numpy()) ** 2
    assert (np.abs(second.mean(0) - pred.stddev.numpy() ** 2) < 4 * second.std(0) / math.sqrt(n)).all()
    assert (np.abs(drawn.mean(0) - pred.mean.numpy()) < 4 * drawn.std(0) / math.sqrt(n)).all()


@pytest.mark.parametrize("outputs", [1, 3])
def test_gaussian_log_prob_is_joint_over_outputs(outputs):
    pred = mixture(outputs=outputs)
    y = torch.randn(4, outputs, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    joint = np.exp(stats.norm.logpdf(y.numpy(), pred.means.numpy(), pred.scales.numpy()).sum(-1)).mean(0)
    assert pred.log_prob(y).numpy() == pytest.approx(np.log(joint), rel=1e-12)


def test_far_targets_have_a_finite_log_density():
    pred = GaussianPredictive(torch.tensor([[[0.0]], [[1.0]]]), torch.tensor(0.1))
    assert pred.log_prob(torch.tensor([[101.0]])).item() == pytest.approx(
        -0.5 * 1000**2 - math.log(0.1 * math.sqrt(2 * math.pi) * 2), rel=1e-6
    )


def test_gaussian_log_prob_refuses_another_shape():
    with pytest.raises(InputError, match=r"\(4,\), predictions \(4, 1\)"):
        mixture(outputs=1).log_prob(torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize("level", [0.001, 0.025, 0.5, 0.9, 0.999])
def test_quantiles_against_root_finding(level):
    pred = mixture()
    found = pred.quantile(level)
    for i in range(4):
        for d in range(2):
            m, s = pred.means[:, i, d].numpy(), pred.scales[:, i, d].numpy()
            root = optimize.brentq(lambda v, m=m, s=s: stats.norm.cdf(v, m, s).mean() - level, -50, 50, xtol=1e-13)
            assert found[i, d].item() == pytest.approx(root, abs=1e-9)
    assert pred.cdf(found).numpy() == pytest.approx(level, abs=1e-9)


def test_one_draw_has_the_quantiles_of_its_gaussian():
    pred = GaussianPredictive(torch.tensor([[[2.0]]], dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
    low, high = pred.interval(0.95)
    assert (low.item(), high.item()) == pytest.approx(stats.norm(2.0, 0.5).interval(0.95), abs=1e-9)
    low, high = pred.interval(0.5)
    assert (low.item(), high.item()) == pytest.approx(stats.norm(2.0, 0.5).interval(0.5), abs=1e-9)
    assert pred.entropy.item() == pytest.approx(stats.norm(2.0, 0.5).entropy(), abs=1e-6)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan, 95])
def test_a_level_lies_between_zero_and_one(level):
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        mixture().quantile(level)


def test_gaussian_entropy_against_monte_carlo():
    pred, n = mixture(), 40_000
    rng = np.random.default_rng(1)
    m, s = pred.means.numpy(), pred.scales.numpy()
    component = rng.integers(5, size=n)
    drawn = m[component] + s[component] * rng.normal(size=(n, *m.shape[1:]))
    each = -np.log(stats.norm.pdf(drawn[:, None], m, s).mean(1))
    error = each.std(0) / math.sqrt(n)
    assert (np.abs(pred.entropy.numpy() - each.mean(0)) < 4 * error).all()
    assert error.max() < 0.01
    own = stats.norm.entropy(scale=s).mean(0)
    assert (np.abs(pred.mutual_information.numpy() - (each.mean(0) - own)) < 4 * error).all()


def test_two_distant_halves_know_ln_2_about_each_other():
    pred = GaussianPredictive(torch.tensor([[[-20.0]], [[20.0]]], dtype=torch.float64), torch.tensor(1.0))
    assert pred.mutual_information.item() == pytest.approx(math.log(2), abs=1e-6)
    assert pred.entropy.item() == pytest.approx(math.log(2) + stats.norm.entropy(), abs=1e-6)


def test_one_noise_level_broadcasts_over_all_outputs():
    means = mixture().means
    one, all_ = GaussianPredictive(means, torch.tensor(0.5)), GaussianPredictive(means, torch.full_like(means, 0.5))
    y = torch.zeros(4, 2, dtype=torch.float64)
    for name in ("mean", "stddev", "epistemic", "aleatoric", "entropy", "mutual_information"):
        assert getattr(one, name).shape == (4, 2)
        assert getattr(one, name).numpy() == pytest.approx(getattr(all_, name).numpy())
    assert one.log_prob(y).numpy() == pytest.approx(all_.log_prob(y).numpy())
    assert one.quantile(0.3).numpy() == pytest.approx(all_.quantile(0.3).numpy())
    assert one.num_draws == 5


def test_score_is_the_error_of_the_mean():
    pred = GaussianPredictive(torch.tensor([[[0.0], [1.0]], [[2.0], [1.0]]]), torch.tensor(1.0))
    assert pred.score(torch.tensor([[4.0], [1.0]])) == ("rmse", pytest.approx(math.sqrt(9 / 2)))


@pytest.mark.parametrize("kind", [ClassPredictive, BinaryPredictive])
def test_no_draws_is_an_error(kind):
    with pytest.raises(InputError, match="samples >= 1"):
        kind.average([])


def test_far_tails_are_kept():
    """exp(-120) is no float32, and neither is 1 - exp(-20): log-probabilities are averaged as such."""
    pred = ClassPredictive.average([torch.tensor([[0.0, -120.0]])] * 2)
    assert pred.log_prob(torch.tensor([1])).item() == pytest.approx(-120)
    binary = BinaryPredictive.average([torch.tensor([[20.0]]), torch.tensor([[30.0]])])
    by_hand = math.log((1 / (1 + math.exp(20)) + 1 / (1 + math.exp(30))) / 2)
    assert binary.log_prob(torch.zeros(1, 1)).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("gap", [0.0, 0.1, 10.0, 50.0, 1e4])
def test_two_draws_hold_at_most_one_bit(gap):
    """Far apart, which draw it was is one bit of information, ln 2; together, none."""
    pred = GaussianPredictive(torch.tensor([[[0.0]], [[gap]]]), torch.full((2, 1, 1), 0.01))
    information = pred.mutual_information.item()
    assert information == pytest.approx(math.log(2) if gap >= 0.1 else 0.0, abs=2e-3)


def test_labels_are_checked():
    pred = ClassPredictive.average([torch.zeros(2, 3).log_softmax(-1)])
    with pytest.raises(InputError, match="integers"):
        pred.log_prob(torch.zeros(2))
    with pytest.raises(InputError, match="one per prediction"):
        pred.log_prob(torch.zeros(2, 3, dtype=torch.long))


@pytest.mark.parametrize("count", [2, 10, 32, 33])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_few_and_many_classes_have_the_softmax(count, size):
    """By the short way and by torch's own, against double precision; also where logits are huge."""
    logits = size * torch.randn(3, 7, count, generator=torch.Generator().manual_seed(0))
    logits[0, 0] = torch.tensor([-torch.inf] + [0.0] * (count - 1))
    ours = Categorical().predictive(list(logits))
    naive = ClassPredictive.average(list(logits.double().log_softmax(-1)))
    for name in ("log_probs", "stddev", "aleatoric"):
        torch.testing.assert_close(getattr(ours, name).double(), getattr(naive, name), rtol=2e-6, atol=2e-6)


def test_the_softmax_of_few_classes_has_its_gradient():
    logits = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours = Categorical().predictive(list(logits)).log_probs[:, 1].sum()
    naive = logits.softmax(-1).mean(0).log()[:, 1].sum()
    found, expected = (torch.autograd.grad(value, logits)[0] for value in (ours, naive))
    torch.testing.assert_close(found, expected)


# -- at a temperature -------------------------------------------------------------------------------------------------


def naive_entropy(p):
    return -sum(float(v) * math.log(float(v)) for v in p if v > 0)


def test_classes_at_a_temperature_by_hand():
    """p = (0.8, 0.2) at T = 1/2 is (0.64, 0.04) / 0.68; of its entropy the draws' share is what it was."""
    draws = [torch.tensor([p], dtype=torch.float64).log() for p in ([0.9, 0.1], [0.7, 0.3])]
    raw = ClassPredictive.average(draws)
    pred = raw.at(0.5)
    assert pred.probs[0].tolist() == pytest.approx([0.64 / 0.68, 0.04 / 0.68], rel=1e-12)
    whole, own = naive_entropy((0.8, 0.2)), (naive_entropy((0.9, 0.1)) + naive_entropy((0.7, 0.3))) / 2
    total = naive_entropy((0.64 / 0.68, 0.04 / 0.68))
    assert pred.entropy.item() == pytest.approx(total, rel=1e-12)
    assert pred.aleatoric.item() == pytest.approx(total * own / whole, rel=1e-12)
    assert pred.mutual_information.item() == pytest.approx(total * (1 - own / whole), rel=1e-9)
    assert torch.equal(pred.stddev, raw.stddev)
    assert pred.num_draws == 2


def test_yes_and_no_at_a_temperature_is_two_classes_at_it():
    logits = [torch.tensor([[1.5, -0.3]]).double(), torch.tensor([[0.2, -2.0]]).double()]
    binary = BinaryPredictive.average(logits).at(3.0)
    for k in range(2):
        pair = [torch.stack([f[:, k], torch.zeros(1)], 1).log_softmax(-1) for f in logits]
        classes = ClassPredictive.average(pair).at(3.0)
        assert binary.probs[0, k].item() == pytest.approx(classes.probs[0, 0].item(), rel=1e-12)
        assert binary.log_complements[0, k].exp().item() == pytest.approx(classes.probs[0, 1].item(), rel=1e-12)
        assert binary.entropy[0, k].item() == pytest.approx(classes.entropy.item(), rel=1e-12)
        assert binary.aleatoric[0, k].item() == pytest.approx(classes.aleatoric.item(), rel=1e-12)


def test_one_is_no_temperature_and_certainty_has_none():
    certain = ClassPredictive.average([torch.tensor([[1.0, 0.0]]).log()])
    assert certain.at(1.0) is certain
    pred = certain.at(2.0)
    assert pred.probs.tolist() == [[1.0, 0.0]]
    assert (pred.entropy.item(), pred.aleatoric.item(), pred.mutual_information.item()) == (0, 0, 0)
    sure = BinaryPredictive.average([torch.tensor([[200.0]])]).at(2.0)
    assert sure.log_complements.item() == pytest.approx(-100.0)
    assert sure.aleatoric.isfinite().all()
