"""The verdict in words, in plain values and drawn, from Python and from the command line."""

import functools
import json
import math
import time

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import credent as cr
from credent.cli import app
from credent.cli.equivalence import FAMILIES, PENALTIES
from credent.errors import InputError
from credent.penalties import L1, L2, Dirac, penalty_of

NO = "No prior: "


def run(*arguments):
    return CliRunner().invoke(app, ["equivalence", *(str(a) for a in arguments)])


def reply(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


# -- the sentence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "family", "begins"),
    [
        (L1(2.0), Dirac, "It is a Laplace prior with mean 0 and standard deviation 0.7071; "),
        (L2(2.0), Dirac, "It is a Gaussian prior with mean 0 and standard deviation 0.5; "),
        (L2(2.0), stats.norm(scale=0.3), "It is a Gaussian prior with mean 0 and standard deviation 0.5; "),
        (lambda mu, nu: np.log1p((mu - 3) ** 2), Dirac, "It is a Cauchy prior with infinite variance; "),
        (lambda mu, nu: np.logaddexp(mu, -mu), Dirac, "It is a hyperbolic secant prior with mean 0 and standard dev"),
        (lambda mu, nu: 2 * np.logaddexp(mu / 2, -mu / 2), Dirac, "It is a logistic prior with mean 0 and standard "),
        (lambda mu, nu: (mu - 1) ** 4, Dirac, "It is a prior with a shape of its own, with mean 1 and standard dev"),
        (L2(2.0), stats.norm, f"{NO}it depends on the scale. The log-density would have to change by 4.09 nats"),
        (L1(2.0), stats.norm, f"{NO}it depends on the scale. "),
        (L1(2.0), stats.norm(scale=0.3), f"{NO}it is not smooth enough. The slope of r jumps by 4 at mu=0; averages"),
        (L1(2.0), stats.laplace(scale=0.3), f"{NO}it is not smooth enough. The slope of r jumps by 4 at mu=0; aver"),
        (lambda mu, nu: np.log1p(mu**2) / 4, stats.norm, f"{NO}it is not integrable. Far out the penalty rises by 0.5"),
    ],
)
def test_the_verdict_is_a_sentence(penalty, family, begins):
    assert str(cr.equivalence(penalty, family)).startswith(begins)


def test_a_name_is_given_only_to_what_has_that_shape():
    student = cr.equivalence(lambda mu, nu: 15.5 * np.log1p(mu**2 / 30), Dirac)  # nearly Gaussian
    assert student.shape is None
    truth = stats.t(30)
    assert student.prior.standard_deviation == pytest.approx(truth.std(), rel=1e-4)


def test_a_corner_is_possible_behind_noise_that_ends_abruptly():
    """E A(mu + e h) = -|mu| for uniform e and the stairs A = -h round(|w| / h), but they are not to be told."""
    found = cr.equivalence(L1(1.0), stats.uniform(scale=0.3))
    assert found.prior is None
    assert found.answer.reason == "it cannot be told from this noise"


@pytest.mark.parametrize("family", [functools.partial(stats.t, 5), functools.partial(stats.t, 2.5), stats.logistic])
@pytest.mark.parametrize("r", [lambda m, s: np.abs(m) + m**2, lambda m, s: np.abs(m), lambda m, s: m**2])
def test_heavy_noise_does_not_run_away(r, family):
    found = cr.equivalence(r, family).answer
    assert found.reason == "it depends on the scale"
    assert found.evidence["change"] < math.log(100) + 0.1  # the entropy's share, less what the noise adds to E r


def test_a_penalty_without_a_scale_of_its_own_is_answered_soon():
    began = time.process_time()
    r = penalty_of(lambda w: -np.log(np.abs(w) + 1e-300), stats.norm)
    assert cr.equivalence(r, stats.norm).answer.reason == "it is not integrable"
    assert time.process_time() - began < 2


def test_a_share_of_a_divergence_is_none():
    r = penalty_of(stats.norm(), stats.norm)
    assert cr.equivalence(r, stats.norm).shape == "Gaussian"
    assert cr.equivalence(lambda mu, nu: 0.1 * r(mu, nu), stats.norm).answer.reason == "it depends on the scale"


# -- the drawing ------------------------------------------------------------------------------------------------------


def test_what_is_drawn_with_a_prior():
    found = cr.equivalence(penalty_of(stats.laplace(scale=0.5), stats.norm), stats.norm)
    left, middle, right = found.figure().axes
    assert len(left.lines) == len(middle.lines) == len(found.answer.log_priors) == 4
    together = np.stack([line.get_ydata() for line in middle.lines])
    assert np.ptp(together, axis=0).max() < 0.05
    w, density = right.lines[0].get_data()
    assert np.abs(density - stats.laplace(scale=0.5).pdf(w)).max() < found.prior.error
    beside = right.lines[1].get_ydata()
    assert np.allclose(beside, stats.norm(scale=0.5 * math.sqrt(2)).pdf(w), atol=1e-4)
    mu, r = left.lines[-1].get_data()
    nu = max(found.answer.log_priors)
    assert np.allclose(r, penalty_of(stats.laplace(scale=0.5), stats.norm)(mu, nu))


def test_what_is_drawn_without():
    found = cr.equivalence(L2(2.0), stats.norm)
    figure = found.figure()
    left, middle, right = figure.axes
    apart = np.stack([line.get_ydata() for line in middle.lines])
    assert np.ptp(apart, axis=0).min() > 4
    assert not right.lines
    assert "None." in right.texts[0].get_text()
    assert figure.get_suptitle() == "No prior: it depends on the scale"
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in (left, middle))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 4
    assert all(label.startswith("ν = ") for label in labels)


@pytest.mark.parametrize(
    ("penalty", "family"),
    [
        (L1(1.0), stats.norm(scale=0.3)),
        (L1(1.0), stats.uniform(scale=0.3)),
        (lambda mu, nu: 0 * mu, stats.norm),
        (lambda mu, nu: -(mu**2), Dirac),
        (lambda mu, nu: mu**4, functools.partial(stats.t, 2.5)),
        (lambda mu, nu: np.log1p(mu**2), Dirac),
        (lambda mu, nu: np.cosh(mu), Dirac),
    ],
    ids=["corner", "uniform", "constant", "negative", "infinite", "cauchy", "steep"],
)
def test_every_answer_can_be_drawn(penalty, family):
    figure = cr.equivalence(penalty, family).figure()
    for axes in figure.axes[:2]:
        assert all(np.isfinite(line.get_ydata()).any() for line in axes.lines)
        assert axes.lines


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_the_files_suffix_decides(suffix, magic, tmp_path):
    found = cr.equivalence(L1(2.0), Dirac)
    path = found.plot(tmp_path / "new" / f"out{suffix}")
    assert path.read_bytes().startswith(magic)
    assert len(path.read_bytes()) > 5000
    assert found.plot(tmp_path / f"again{suffix}").read_bytes() == path.read_bytes()


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.png, \.svg or \.pdf"):
        cr.equivalence(L1(2.0), Dirac).plot(tmp_path / "out.jpg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("penalty", "family"),
    [(penalty_of(stats.laplace(), stats.norm), stats.norm), (lambda mu, nu: mu**4, stats.norm(scale=0.3))],
)
def test_it_takes_seconds(penalty, family, tmp_path):
    began = time.process_time()
    found = cr.equivalence(penalty, family)
    assert time.process_time() - began < 2
    found.plot(tmp_path / "out.png")
    assert time.process_time() - began < 5


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "family", "message"),
    [
        (lambda mu, nu: mu + 1j, stats.norm, "r is complex: a penalty is a real number of nats"),
        (lambda mu, nu: np.log(mu), stats.norm, "is nan: a penalty is a finite number"),
        (lambda mu, nu: mu**2 if mu > 0 else -mu, stats.norm, "np.vectorize"),
        (lambda mu, nu: 3.0, stats.norm, "one value for each mean"),
        (lambda mu, nu: mu**2, stats.cauchy, "no mean"),
        (lambda mu, nu: mu**2, stats.norm(scale=-0.3), "a scale is positive; no noise is cr.penalties.Dirac"),
        (L1("fan_in"), stats.norm, "another function in every layer"),
        (cr.penalties.GroupLasso(), Dirac, "couples weights"),
        ("l1", stats.norm, r"a function r\(mu, sigma\)"),
        (L1(1.0), "gaussian", "no family of noise: write scipy.stats.norm"),
    ],
)
def test_what_cannot_be_answered_is_refused(penalty, family, message):
    with pytest.raises(InputError, match=message):
        cr.equivalence(penalty, family)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_it_and_draws_it(tmp_path):
    result = run("--penalty", "l1", "--family", "gaussian", "--plot", tmp_path / "out.png")
    assert result.exit_code == 0
    assert result.stdout.startswith("No prior: it depends on the scale. ")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "plot: " in result.stdout


def test_the_command_answers_machines(tmp_path):
    said = reply("--penalty", "l1", "--family", "dirac", "--factor", "2", "--plot", tmp_path / "out.svg")
    assert said["prior"] is True
    assert said["shape"] == "Laplace"
    assert said["standard_deviation"] == pytest.approx(math.sqrt(0.5), rel=1e-6)
    assert said["plot"].endswith("out.svg")
    infinite = reply("--penalty", "cauchy", "--family", "dirac")
    assert infinite["prior"] is True
    assert infinite["standard_deviation"] is None
    none = reply("--penalty", "l1", "--scale", "0.3")
    assert none["prior"] is False
    assert none["reason"] == "it is not smooth enough"
    assert none["evidence"]["jump"] == pytest.approx(2, rel=1e-6)
    assert reply("--penalty", "l2", "--scale", "0.3")["standard_deviation"] == pytest.approx(math.sqrt(0.5), rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_has_an_answer(family):
    for name in PENALTIES if family == "gaussian" else [name for name in PENALTIES if name != "kl-laplace"]:
        said = reply("--penalty", name, "--family", family)
        assert said["prior"] is (family == "dirac" or name.startswith("kl-")), (name, family)
    assert reply("--penalty", "kl-gaussian", "--family", family)["shape"] == "Gaussian"


def test_the_list_names_them_all():
    said = run("--list").stdout
    assert all(name in said for name in (*PENALTIES, *FAMILIES))
    assert reply("--list")["penalties"]["l1"] == "|mu|, the lasso"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--penalty", "l3"], "Did you mean 'l"),
        (["--family", "gausian"], "Did you mean 'gaussian'?"),
        (["--family", "zebra"], "There are gaussian, laplace,"),
        (["--scale", "-0.3"], "a scale is positive"),
        (["--scale", "nan"], "a scale is positive"),
        (["--factor", "0"], "lambda is a positive number"),
        (["--family", "dirac", "--scale", "0.3"], "leave one of them out"),
        (["--plot", "out.gif"], "ends in .png"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_two(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
