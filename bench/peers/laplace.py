"""laplace-torch: a Gaussian around trained weights, from the curvature of the log-likelihood there.

Sums over the data set, prior precision 1: the right scale. It trains nothing, so a training step is MAP's by a plain
loop, and `fit` is one pass over the batch that the step was given.
"""

from functools import partial

import torch
from laplace import Laplace
from laplace.utils.utils import get_nll
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from bench.peers.layers import with_optimiser
from bench.peers.peer import Batches, Bayesian, Task, count


def _laplace(net: nn.Module, task: Task, weights: str, structure: str, by_sampling: bool = False) -> Bayesian:
    la = Laplace(net, "classification", subset_of_weights=weights, hessian_structure=structure)
    train = with_optimiser(lambda x, y: task.nll(net(x), y), task.adam(net.parameters()))

    def step(x: Tensor, y: Tensor) -> object:
        net.train()  # `fit` leaves it in evaluation mode
        value = train(x, y)
        la.fit(DataLoader(TensorDataset(x, y), batch_size=len(x)))
        return value

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        vector_to_parameters(la.sample(1)[0], la.params)  # as its own sampling does, but logits and not their softmax
        outputs: Tensor = net(x)
        vector_to_parameters(la.mean, la.params)
        return outputs

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return net(x)

    def predict(x: Tensor, samples: int) -> Tensor:
        if by_sampling:
            return la(x, pred_type="nn", link_approx="mc", n_samples=samples)
        return la(x, pred_type="glm", link_approx="probit")

    random = count(net) if weights == "all" else count(list(net.children())[-1])
    return Bayesian(net, step, draw, mean, random, count(net), predict)


LAPLACE = {
    "laplace-torch, last layer, probit": partial(_laplace, weights="last_layer", structure="kron"),
    "laplace-torch, last layer, sampled": partial(_laplace, weights="last_layer", structure="kron", by_sampling=True),
}


def _tuned(net: nn.Module, task: Task, weights: str, by_validation: bool = False) -> Bayesian:
    """MAP (here with prior N(0, 1) at weight beta), the curvature, the prior's precision.

    That is chosen by marginal likelihood, as in its examples and by default, or as in its README by the least NLL of
    validation data on a grid of 100 precisions. The grid's default loss is a running mean that is never begun anew, so
    that its least value is not the least NLL's: the loss is handed over, which its documentation allows.
    """
    fitted: list[Laplace] = []

    def loss(x: Tensor, y: Tensor) -> Tensor:
        squares = torch.stack([p.square().sum() for p in net.parameters()]).sum()
        return task.nll(net(x), y) + task.beta / (2 * task.num_data) * squares

    def finish(data: Batches, val: Batches) -> None:
        la = Laplace(net, "classification", subset_of_weights=weights, hessian_structure="kron")  # copies the weights
        la.fit(data)
        if by_validation:
            options = {"pred_type": "glm", "link_approx": "probit", "loss": get_nll, "val_loader": val}
            la.optimize_prior_precision(method="gridsearch", **options)
        else:
            la.optimize_prior_precision(method="marglik", link_approx="probit")
        fitted[:] = [la]

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return net(x)

    def predict(x: Tensor, samples: int) -> Tensor:
        return fitted[0](x, pred_type="glm", link_approx="probit").detach()

    step = with_optimiser(loss, task.adam(net.parameters()))
    random = count(net) if weights == "all" else count(list(net.children())[-1])
    return Bayesian(net, step, mean, mean, random, count(net), predict, finish=finish)


TUNED = {
    "laplace-torch, last layer": partial(_tuned, weights="last_layer"),
    "laplace-torch, last layer, grid": partial(_tuned, weights="last_layer", by_validation=True),
    "laplace-torch, Kronecker": partial(_tuned, weights="all"),
}
CONVERTS = {"laplace-torch, diagonal": partial(_laplace, weights="all", structure="diag", by_sampling=True)}
