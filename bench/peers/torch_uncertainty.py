"""torch-uncertainty: needs torchvision and lightning at import, which would bring another build of torch.

Where both are there, nothing is raced yet: it has layers and no converter, its ELBO divides the KL by the number of
layers, and its SGLD multiplies the noise by 0.01.
"""

import torch_uncertainty  # noqa: F401
