"""Chains in one call are the chains one by one."""

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError, NonFiniteError
from credent.noise import Noise
from credent.objectives import Stacked

N, CHAINS = 12, 3

pytestmark = pytest.mark.filterwarnings("ignore:no draw of")


def net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def data(seed=0):
    x = torch.randn(N, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, (x @ torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).double()).argmax(-1)


class Tape(Noise):
    """A stream whose numbers are known: of all chains together, or of one of them, parameter by parameter."""

    def __init__(self, sizes, chain):
        super().__init__(0)
        self.sizes, self.chain = sizes, chain

    def normal_(self, out):
        if self.chain is None:
            return super().normal_(out)
        of_all = super().normal_(out.new_empty(CHAINS * len(out))).split([CHAINS * n for n in self.sizes])
        return out.copy_(torch.cat([each.view(CHAINS, -1)[self.chain] for each in of_all]))


def sampler(kind, params, chain, **options):
    params = list(params)
    made = getattr(cr.samplers, kind)(params, lr=1e-2, num_data=N, **options)
    made.noise = Tape([p.numel() for p in params], chain)
    return made


@pytest.mark.parametrize(
    ("kind", "options"),
    [("SGLD", {}), ("SGLD", {"momentum": 0.9, "temperature": 0.1}), ("PSGLD", {"burn_in": 5, "momentum": 0.5})],
)
@pytest.mark.parametrize("prior", [cr.priors.Gaussian(), cr.priors.Laplace(0.3)])
def test_a_stack_walks_as_each_chain_by_itself(kind, options, prior):
    """Ten steps on minibatches, from different places, with the same noise; the fans are those of one network."""
    stack = Stacked([net(c) for c in range(CHAINS)], cr.likelihoods.Categorical(), prior, num_data=N)
    x, y = data()
    loader = [(x[:7], y[:7]), (x[7:], y[7:])]
    cr.fit(stack, sampler(kind, stack.parameters(), None, **options), loader, epochs=5, progress=False)
    for c, found in enumerate(stack.chains()):
        one = net(c)
        first = {k: p.detach().clone() for k, p in one.named_parameters()}
        alone = cr.MAP(one, cr.likelihoods.Categorical(), prior, num_data=N)
        cr.fit(alone, sampler(kind, one.parameters(), c, **options), loader, epochs=5, progress=False)
        for k, p in one.named_parameters():
            torch.testing.assert_close(found[k], p.detach(), rtol=0, atol=1e-12)
            assert (p.detach() - first[k]).abs().max() > 1e-2


def test_loss_terms_and_gradients_are_the_chains_own():
    stack = Stacked([net(c) for c in range(CHAINS)], cr.likelihoods.Categorical(), num_data=N, beta=0.5)
    x, y = data()
    loss = stack(x[:5], y[:5])
    loss.backward()
    losses, nlls = [], []
    for c in range(CHAINS):
        one = net(c)
        alone = cr.MAP(one, cr.likelihoods.Categorical(), num_data=N, beta=0.5)
        losses.append(alone(x[:5], y[:5]))
        losses[-1].backward()
        nlls.append(alone.last.nll)
        for k, p in one.named_parameters():
            torch.testing.assert_close(stack.net.get_parameter(k).grad[c], p.grad, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(stack.predict(x, samples=None).num_draws, CHAINS)
    torch.testing.assert_close(loss, sum(losses))
    torch.testing.assert_close(stack.last.nll, sum(nlls) / CHAINS)  # as a person reads it
    torch.testing.assert_close(stack.last.loss, loss.detach() / CHAINS)


def test_the_law_is_the_posterior_in_every_chain():
    """A linear regression with a known posterior: the variance of each of two weights over 400 chains after 60 steps.

    With full gradients SGLD's variance along an eigenvalue l of the precision is 1 / (l (1 - eps l / 4)).
    """
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    nets = [nn.Linear(2, 1, bias=False).double() for _ in range(400)]
    stack = Stacked(nets, cr.likelihoods.Gaussian(scale=1.0), cr.priors.Gaussian(scale=1.0), num_data=2)
    eps = 0.2
    walk = cr.samplers.SGLD(stack.parameters(), lr=eps, num_data=2, seed=0)
    cr.fit(stack, walk, [(x, x.sum(1, keepdim=True))], steps=60, progress=False)
    precision = torch.tensor([2.0, 5.0], dtype=torch.float64)  # 1 + x^2
    exact = 1 / (precision * (1 - eps * precision / 4))
    found = stack.net.weight.detach()[:, 0]
    ratio = found.var(0) / exact
    assert ((ratio - 1).abs() < 3 * (2 / 400) ** 0.5).all()
    mean = torch.tensor([1.0, 4.0], dtype=torch.float64) / precision
    assert ((found.mean(0) - mean).abs() < 3 * (exact / 400).sqrt()).all()


def test_draws_of_a_stack_are_chains(tmp_path):
    nets = [net(c) for c in range(CHAINS)]
    stack = Stacked(nets, cr.likelihoods.Categorical(), num_data=N)
    walk = cr.samplers.SGLD(stack.parameters(), lr=1e-3, num_data=N, seed=0)
    options = {"keep": cr.Thin(after=0.5, every=1), "progress": False}
    result = cr.fit(stack, walk, [data()], steps=8, run_dir=tmp_path, val=[data()], **options)
    q = result.posterior
    assert isinstance(q, cr.Chains)
    assert [len(chain) for chain in q.chains] == [4] * CHAINS
    for c, own in enumerate(stack.chains()):
        assert all(torch.equal(q.chains[c][3][k], w) for k, w in own.items())
    pred = cr.predict(nets[0], q, stack.likelihood, data()[0], samples=None)
    assert pred.num_draws == 12
    fresh = Stacked([net(9) for _ in range(CHAINS)], cr.likelihoods.Categorical(), num_data=N)
    loaded = cr.load(fresh, tmp_path / "posterior.safetensors")
    assert all(torch.equal(loaded[7][k], q[7][k]) for k in q[7])
    assert all(torch.equal(nets[1].get_parameter(k), net(1).get_parameter(k)) for k in q[0])  # the given stay


def test_tied_and_frozen_parameters():
    def tied():
        made = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Linear(2, 3)).double()
        made[2].weight = made[0].weight
        made[3].weight.data.fill_(0.1)
        made[3].weight.requires_grad_(False)
        return made

    torch.manual_seed(0)
    stack = Stacked([tied() for _ in range(2)], cr.likelihoods.Categorical(), num_data=N)
    assert stack.net[2].weight is stack.net[0].weight
    assert stack.net[0].weight.shape == (2, 2, 2)
    assert stack.net[3].weight.shape == (3, 2)
    stack(*data()).backward()
    assert stack.net[0].weight.grad.shape == (2, 2, 2)


def test_what_cannot_be_stacked():
    likelihood = cr.likelihoods.Categorical()
    with pytest.raises(InputError, match=r"\[make_net\(\) for _ in range\(4\)\]"):
        Stacked(net(0), likelihood, num_data=N)
    with pytest.raises(InputError, match="network 1 is not of the shape of network 0"):
        Stacked([net(0), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).double()], likelihood, num_data=N)
    with pytest.raises(InputError, match=r"'1' keeps running statistics.*GroupNorm.*cr\.chains"):
        Stacked([nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(2)], likelihood, num_data=N)
    with pytest.raises(InputError, match="density"):
        Stacked([net(0)], likelihood, cr.penalties.L1(1.0), num_data=N)
    frozen = [net(0), net(1)]
    for each in frozen:
        each[0].requires_grad_(False)
    with pytest.raises(InputError, match=r"0\.weight is not trained and differs"):
        Stacked(frozen, likelihood, num_data=N)
    stack = Stacked([net(0), net(1)], likelihood, num_data=N)
    bnp = cr.samplers.BNPSGLD(stack.net, lr=1e-3, num_data=N)
    with pytest.raises(InputError, match=r"BNPSGLD knows the inputs of one network.*PSGLD.*cr\.chains"):
        cr.fit(stack, bnp, [data()], steps=1, progress=False)


@pytest.mark.parametrize("prior", [cr.priors.Horseshoe(learnt=True), cr.priors.NodeHorseshoe()])
def test_priors_without_most_probable_weights_are_refused_as_map_does(prior):
    with pytest.raises(InputError, match="a point mass has no most probable weights under it"):
        Stacked([nn.Linear(2, 1), nn.Linear(2, 1)], cr.likelihoods.Gaussian(scale=1.0), prior, num_data=4)


def test_one_chain_that_diverges_is_seen():
    nets = [net(0), net(1)]
    nets[1][0].weight.data.fill_(torch.inf)
    stack = Stacked(nets, cr.likelihoods.Categorical(), num_data=N)
    with pytest.raises(NonFiniteError, match=r"net\.0\.weight.*lr=0\.001"):
        cr.fit(stack, cr.samplers.SGLD(stack.parameters(), lr=1e-2, num_data=N), [data()], steps=2, progress=False)


def test_the_penalty_of_a_stack_is_the_sum_of_its_chains():
    nets = [nn.Linear(2, 3) for _ in range(4)]
    stack = Stacked(nets, cr.likelihoods.Gaussian(scale=1.0), cr.priors.Gaussian(scale=0.5), num_data=10)
    normal = torch.distributions.Normal(0.0, 0.5)
    expected = -sum(normal.log_prob(p).sum() for net in nets for p in net.parameters())
    assert stack.penalty(stack.q).item() == pytest.approx(expected.item(), rel=1e-6)
