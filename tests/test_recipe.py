import dataclasses
import json
import math

import pytest
import torch
from torch import nn

from credent.errors import BudgetError, CheckpointError, InputError
from credent.evaluation import evaluate
from credent.families import Draws, Mixture
from credent.likelihoods import Categorical, Gaussian
from credent.objectives import MAP, VI
from credent.optim import Average, Muon
from credent.predict import predict
from credent.priors import Horseshoe
from credent.recipe import MODELS, Recipe
from credent.recipe.chain import burn_in, sampler, thin
from credent.recipe.choices import network
from credent.samplers import BNPSGLD, PSGLD, SGLD
from credent.training import ScaleRatio, Thin, fit

SAMPLERS = ("sgld", "psgld", "bnp")


def test_json_round_trip_keeps_every_field():
    recipe = Recipe(data="cubic", method="map", lr=0.5, noise="0.3", random="head.*", seed=7)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert set(json.loads(recipe.to_json())) == {f.name for f in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("method", ["map", "sgld"])
def test_only_what_learns_scales_has_a_rate_for_them(method):
    recipe = Recipe(method=method)
    assert recipe.scale_lr is None
    assert Recipe.from_json(recipe.to_json()) == recipe
    with pytest.raises(InputError, match="learns no scales"):
        Recipe(method=method, scale_lr=0.1)
    assert Recipe(method="vl", scale_lr=0.1).scale_lr == 0.1


@pytest.mark.parametrize("text", ["", "{", '{"colour": 1}', "[1]"])
def test_a_foreign_config_is_refused(text):
    with pytest.raises(CheckpointError, match="not a recipe"):
        Recipe.from_json(text)


def test_a_config_from_before_there_were_samplers_loads():
    old = {"data": "digits", "model": "mlp", "method": "vi", "epochs": 5, "batch_size": 64, "lr": 0.004}
    old |= {"scale_lr": 0.02, "beta": 0.01, "weight_samples": 1, "prior": "gaussian", "prior_scale": "kaiming"}
    old |= {"family": "gaussian", "noise": "learnt", "random": "*", "split": 0, "seed": 0}
    assert Recipe.from_json(json.dumps(old)) == Recipe(epochs=5)


def test_a_config_from_before_there_were_members_has_one():
    config = json.loads(Recipe(data="fashion_mnist", members=1).to_json())
    del config["members"]
    assert Recipe.from_json(json.dumps(config)).members == 1


def test_members_by_default():
    """Several by VI on images, each colder and shorter than one alone; one where members cannot be."""
    six, four, alone = Recipe(data="mnist"), Recipe(data="svhn"), Recipe(data="mnist", members=1)
    assert (six.members, six.beta, six.lr, six.scale_lr, six.epochs) == (6, 0.01, 0.006, 0.03, 6)
    assert (four.members, four.beta, four.lr, four.epochs) == (4, 0.03, 0.004, 20)
    assert (alone.members, alone.beta, alone.lr, alone.epochs) == (1, 0.2, 0.004, 40)
    assert [each.optimiser for each in (six, four, alone, Recipe())] == ["muon", "adam", "adam", "adam"]
    assert Recipe(data="mnist", random="head.*") == dataclasses.replace(alone, random="head.*")
    assert [Recipe(data="mnist", method=method).members for method in ("map", "vl", "sgld")] == [1, 1, 1]
    assert Recipe().members == 1


def test_what_it_builds():
    built = Recipe(data="digits", method="vi", beta=0.5, prior="laplace", family="radial", weight_samples=3).build()
    assert isinstance(built.objective, VI)
    assert isinstance(built.objective.likelihood, Categorical)
    assert (built.objective.num_data, built.objective.beta, built.objective.samples) == (1000, 0.5, 3)
    assert type(built.objective.posterior).__name__ == "RadialPosterior"
    built = Recipe(data="heteroscedastic", method="map", noise="heteroscedastic").build()
    assert isinstance(built.objective, MAP)
    assert isinstance(built.objective.likelihood, Gaussian)
    assert built.objective.net(torch.zeros(2, 1)).shape == (2, 2)


def test_the_seed_decides_everything():
    first, again, other = (Recipe(seed=s).build() for s in (1, 1, 2))
    x, _ = first.data.test[:4]
    assert torch.equal(first.objective.net(x), again.objective.net(x))
    assert not torch.equal(first.objective.net(x), other.objective.net(x))
    orders = [torch.cat([y for _, y in built.loader()]) for built in (first, again, other)]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    draws = [built.objective.posterior.sample(1) for built in (first, again)]
    assert all(torch.equal(draws[0][k], draws[1][k]) for k in draws[0])


def test_members_begin_and_shuffle_apart_and_the_first_is_the_only_one_of_a_recipe_without_others():
    alone, three = Recipe().build(), Recipe(members=3).build()
    x, _ = alone.data.test[:4]
    outputs = [member.net(x) for member in three.members]
    assert torch.equal(outputs[0], alone.objective.net(x))
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[1], outputs[2])
    orders = [torch.cat([y for _, y in three.loader(k)]) for k in range(3)]
    assert torch.equal(orders[0], torch.cat([y for _, y in alone.loader()]))
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[1], orders[2])


@pytest.mark.parametrize(("method", "draws"), [("map", 3), ("vi", 6)])
def test_members_are_averaged(method, draws):
    """By hand: the mean of what each predicts alone, with its share of the draws; of MAP each is one point."""
    built = Recipe(method=method, members=3, epochs=1).build()
    result = built.train(progress=False)
    x, y = built.data.val[:]
    pred = predict(built.objective.net, result.posterior, built.objective.likelihood, x, samples=6, seed=4)
    apart = [member.predict(x, samples=2, seed=4 + k * 2**20).probs for k, member in enumerate(built.members)]
    assert torch.allclose(pred.probs, torch.stack(apart).mean(0), atol=1e-6)
    assert pred.num_draws == draws
    assert [row.get("member") for row in result.history] == [0, 1, 2, None]
    ends = [row["nll"] for row in result.history[:-1]]
    assert result.history[-1]["nll"] == pytest.approx(sum(ends) / 3)
    assert result.steps == 3 * built.steps
    whole = predict(built.objective.net, result.posterior, built.objective.likelihood, x, samples=30)
    assert result.history[-1]["val_nll"] == pytest.approx(-whole.log_prob(y).double().mean().item())


def test_a_seed_of_training_is_offset_for_each_member():
    built = Recipe(members=2, epochs=1).build()
    built.train(progress=False, seed=5)
    noise = []
    for q in (member.posterior for member in built.members):
        w, m, sigma = q.sample(1), q.mean(), q.stddev()
        noise.append(torch.cat([((w[k] - m[k]) / sigma[k]).flatten() for k in m]))
    together = torch.corrcoef(torch.stack(noise))[0, 1].item()
    assert abs(together) < 5 / math.sqrt(noise[0].numel())


def test_monitors_of_several_members_are_refused():
    built = Recipe(members=2, epochs=1).build()
    with pytest.raises(InputError, match="members=1"):
        built.train(progress=False, monitors=[ScaleRatio(built.objective, every=1)])


def test_members_with_batch_norm_are_normalised_by_statistics_of_their_own():
    """Two that differ by a scale that BatchNorm removes predict alike; by the first's statistics they would not."""
    built = Recipe(method="map", members=2).build()
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    with torch.no_grad():
        nets[1][1].weight.mul_(5)
        nets[1][1].bias.mul_(5)
    first, second = (MAP(net, Categorical(), num_data=1000) for net in nets)
    scores = [
        evaluate(first, Mixture(members), built.data).scores["nll"]
        for members in ([first.posterior], [first.posterior, second.posterior])
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_only_the_head():
    built = Recipe(random="head.*").build()
    assert built.objective.layout.names == ("head.weight", "head.bias")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "digitz"}, "Did you mean 'digits'"),
        ({"model": "transformer"}, "there is no such model"),
        ({"lr": 0.0}, "positive"),
        ({"batch_size": 0}, "positive"),
        ({"members": 0}, "positive"),
        ({"members": 2.0}, "whole number"),
        ({"members": True}, "whole number"),
        ({"epochs": float("inf")}, "whole number"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"schedule": "average", "method": "sgld"}, "steps of sgld are its own and constant"),
        ({"optimiser": "muon", "method": "psgld"}, "steps of psgld are its own and constant"),
        ({"optimiser": "moun"}, "Did you mean 'muon'"),
        ({"members": 2, "method": "vl"}, "mean of one q"),
        ({"members": 2, "method": "sgld"}, "credent.chains"),
        ({"members": 2, "random": "head.*"}, "members share one network"),
        ({"temperature": 0.5}, "samplers have one"),
        ({"method": "sgld", "temperature": -1.0}, "not negative"),
        ({"method": "psgld", "random": "head.*"}, "nothing would train the others"),
        ({"method": "bnp", "data": "cubic"}, "no default step size"),
        ({"prior": "inverse_reference", "prior_scale": "0.1"}, "no scale to choose"),
        ({"prior": "self_stabilizing", "method": "sgld"}, "--method vi"),
        ({"prior": "inverse_reference", "method": "map"}, "--method vi"),
    ],
)
def test_bad_fields_are_explained(changes, words):
    with pytest.raises(InputError, match=words):
        Recipe(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "map", "prior": "node_horseshoe"}, "Train with VI"),
        ({"method": "sgld", "prior": "node_horseshoe"}, "Train with VI"),
        ({"method": "vl", "prior": "horseshoe"}, "no variance"),
        ({"family": "radial", "prior": "self_stabilizing"}, "Gaussian"),
        ({"method": "sgld", "data": "cubic", "lr": 1e-5}, "--noise heteroscedastic"),
        ({"members": 2, "data": "cubic"}, "--noise heteroscedastic"),
        ({"method": "sgld", "epochs": 1, "batch_size": 1000}, "keeps no draw"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(changes, words):
    with pytest.raises(InputError, match=words):
        Recipe(**changes).build()


def test_draws_that_would_not_fit_are_refused_when_it_is_built(monkeypatch):
    monkeypatch.setattr("credent.recipe.chain.thin", lambda total: Thin(every=10, max_bytes=1000))
    with pytest.raises(BudgetError):
        Recipe(method="sgld").build()


def test_beta_and_temperature_of_samplers():
    found = [Recipe(method="sgld", **given) for given in ({}, {"beta": 0.1}, {"beta": 0.1, "temperature": 1.0})]
    assert [(each.beta, each.temperature) for each in found] == [(1.0, 1.0), (0.1, 0.1), (0.1, 1.0)]
    assert Recipe(method="vi").temperature is None


@pytest.mark.parametrize("model", [m for m in MODELS if m != "mlp"])
def test_every_model_takes_the_images_it_is_for(model):
    data = Recipe().build().data
    for shape in ((1, 28, 28), (3, 32, 32)):
        with torch.device("meta"):
            net = network(model, dataclasses.replace(data, shape=shape), 7)
            assert net(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("method", SAMPLERS)
def test_a_chain_is_the_one_written_by_hand(method):
    """The recipe's draws, from the pieces that docs/sampling.md names."""
    recipe = Recipe(method=method, epochs=4, beta=0.5, lr=3e-6, prior="horseshoe", prior_scale="fan_in", seed=3)
    result = recipe.build().train(progress=False)
    built, total = recipe.build(), 4 * 16  # 1,000 images in batches of 64
    objective = MAP(built.objective.net, Categorical(), Horseshoe("fan_in"), num_data=1000, beta=0.5)
    shared = {"lr": 3e-6, "num_data": 1000, "temperature": 0.5, "seed": 2**31 + 3}
    if method == "sgld":
        sampler = SGLD(objective.net.parameters(), **shared)
    elif method == "psgld":
        sampler = PSGLD(objective.net.parameters(), burn_in=total // 2, **shared)
    else:
        sampler = BNPSGLD(objective.net, burn_in=total // 2, **shared)
    by_hand = fit(objective, sampler, built.loader(), epochs=4, keep=Thin(0.5, every=1), progress=False)
    assert isinstance(result.posterior, Draws)
    assert len(result.posterior) == len(by_hand.posterior) == 32
    for ours, theirs in zip(result.posterior.draws(), by_hand.posterior.draws(), strict=True):
        assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


@pytest.mark.parametrize("epochs", [3, 4, 7, 60, 120, 2000])
def test_about_fifty_draws_from_the_second_half(epochs):
    built = Recipe(method="sgld", epochs=epochs).build()
    total = 16 * epochs
    kept = [t for t in range(1, total + 1) if thin(total).keeps(t, built.steps)]
    assert built.steps == total
    assert min(kept) > burn_in(total) == total // 2
    assert min(total // 2, 25) <= len(kept) <= 50


@pytest.mark.parametrize("prior", ["horseshoe", "node_horseshoe", "self_stabilizing", "inverse_reference"])
def test_priors_by_name(prior):
    built = Recipe(prior=prior, epochs=3).build()
    result = built.train(progress=False)
    x, y = built.data.val[:]
    found = predict(built.objective.net, result.posterior, built.objective.likelihood, x, samples=8)
    assert (found.label == y).double().mean() > 0.7  # chance is 0.1
    watched = [row["scale_ratio"] for row in result.history if "scale_ratio" in row]
    assert len(watched) == (48 if prior == "inverse_reference" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", SAMPLERS)
def test_samplers_with_nothing_but_defaults(method):
    built = Recipe(method=method).build()
    posterior = built.train(progress=False).posterior
    x, y = built.data.test[:]
    found = predict(built.objective.net, posterior, built.objective.likelihood, x, samples=None)
    assert (found.label == y).double().mean() > 0.9
    assert -found.log_prob(y).mean() < 0.6


@pytest.mark.parametrize("method", SAMPLERS)
def test_a_samplers_noise_is_not_that_of_the_first_weights(method):
    """Of a seed torch's generator takes the lower 32 bits, so a stream beyond them would be the same one."""
    built = Recipe(method=method, seed=7).build()
    noise = sampler(method, built.objective, 1e-5, 1.0, 100, seed=7).noise.normal(torch.zeros(20))
    assert not torch.equal(noise, torch.randn(20, generator=torch.Generator().manual_seed(7)))


@pytest.mark.parametrize(("method", "members"), [("map", 1), ("vi", 2), ("vl", 1), ("psgld", 1)])
def test_a_finished_run_is_calibrated_by_its_validation_data_and_saved_so(method, members, tmp_path):
    recipe = Recipe(method=method, members=members, epochs=2)
    recipe.build().train(tmp_path, progress=False)
    built = recipe.build()
    before, after, temperature = built.calibrate(tmp_path)
    assert after["val_nll"] < before["val_nll"]
    again = Recipe.from_json(recipe.to_json()).build()
    posterior = again.load(tmp_path)
    assert again.objective.likelihood.temperature.item() == pytest.approx(temperature)
    x, y = built.data.val[:]
    options = {"samples": 10 * members, "how": built.objective.how}

    def nll(tempered):
        again.objective.likelihood.temperature.fill_(tempered)
        return -predict(again.objective.net, posterior, again.objective.likelihood, x, **options).log_prob(y).mean()

    assert nll(temperature).item() == pytest.approx(after["val_nll"], rel=1e-5)
    assert nll(temperature) < min(nll(t * temperature) for t in (0.9, 1.1))
    assert recipe.build().calibrate(tmp_path) == (before, after, pytest.approx(temperature))  # it begins at one again


def test_what_has_no_classes_is_not_calibrated(tmp_path):
    with pytest.raises(InputError, match="cubic has no classes"):
        Recipe(data="cubic").build().calibrate(tmp_path)


def test_an_average_of_weights_is_what_is_saved(tmp_path):
    """Adam by hand at a constant rate, averaged by hand."""
    recipe = Recipe(method="map", epochs=2, schedule="average")
    built, by_hand = recipe.build(), recipe.build()
    built.train(tmp_path, progress=False)
    bnn, average = by_hand.objective, Average(by_hand.objective)
    optimizer = torch.optim.Adam(bnn.param_groups(recipe.lr), fused=True)
    loader = by_hand.loader()
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            bnn(x, y).backward()
            optimizer.step()
            average.update()
    average.apply()
    saved = recipe.build()
    saved.load(tmp_path)
    for ours, theirs in zip(bnn.net.parameters(), saved.objective.net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_muon_moves_the_matrices_of_a_recipe_and_of_its_members():
    """Oracle: `fit` by hand with the same optimiser, cosine and data order."""
    recipe = Recipe(members=2, epochs=1, optimiser="muon", lr=0.006, scale_lr=0.03)
    trained, by_hand = recipe.build(), recipe.build()
    trained.train(progress=False)
    for k, objective in enumerate(by_hand.members):
        optimizer = Muon.beside_adam(objective, 0.006, 0.03)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, by_hand.steps)
        fit(objective, optimizer, by_hand.loader(k), epochs=1, scheduler=cosine, schedule="step", progress=False)
        assert all(map(torch.equal, objective.parameters(), trained.members[k].parameters()))
    adam = dataclasses.replace(recipe, optimiser="adam").build()
    adam.train(progress=False)
    assert not any(map(torch.equal, adam.objective.net.parameters(), trained.objective.net.parameters()))


def test_a_config_from_before_there_were_optimisers_has_adam():
    for method, optimiser in (("vi", "adam"), ("sgld", None)):
        config = json.loads(Recipe(data="mnist", method=method).to_json())
        del config["optimiser"]
        assert Recipe.from_json(json.dumps(config)).optimiser == optimiser


def test_a_config_from_before_there_were_schedules_has_the_one_that_there_was():
    for method, schedule in (("map", "cosine"), ("sgld", None)):
        config = json.loads(Recipe(method=method).to_json())
        del config["schedule"]
        assert Recipe.from_json(json.dumps(config)).schedule == schedule
