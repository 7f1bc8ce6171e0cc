"""What all networks share: sizes, shapes, initialisation, gradients."""

import pytest
import torch
from torch import nn

from credent.errors import InputError
from credent.models import (
    CVNN,
    MLP,
    VGG11,
    VGG13,
    VGG16,
    VGG19,
    DenseNet121,
    LeNet5,
    PreActResNet18,
    ResNet18,
    ResNet20,
)


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


NETWORKS = [
    (lambda: MLP(64, 3), (1, 8, 8)),
    (lambda: LeNet5(3), (1, 28, 28)),
    (lambda: LeNet5(3, in_channels=3), (3, 32, 32)),
    (lambda: ResNet20(3), (3, 32, 32)),
    (lambda: ResNet20(3, width=8, in_channels=1), (1, 28, 28)),
    (lambda: PreActResNet18(3, width=8), (3, 32, 32)),
    (lambda: PreActResNet18(3, width=8, in_channels=1, activation=nn.Softplus), (1, 28, 28)),
    (lambda: ResNet18(3, width=8), (3, 32, 32)),
    (lambda: ResNet18(3, width=4, in_channels=1, activation=nn.Softplus), (1, 8, 8)),
    (lambda: DenseNet121(3, width=8), (3, 32, 32)),
    (lambda: DenseNet121(3, width=4), (3, 16, 16)),
    (lambda: DenseNet121(3, width=4, in_channels=1), (1, 8, 8)),
    (lambda: DenseNet121(3, width=4, in_channels=1, activation=nn.Softplus), (1, 28, 28)),
    (lambda: CVNN(3, width=8), (3, 32, 32)),
    (lambda: CVNN(3, width=8, in_channels=1, pixels=14), (1, 14, 14)),
    (lambda: VGG16(3, width=8), (3, 32, 32)),
    (lambda: VGG19(3, width=8, in_channels=1), (1, 8, 8)),
]


def conv(fan_in: int, out: int, size: int = 3) -> int:
    return fan_in * out * size * size


def test_published_parameter_counts():
    assert count(MLP(784, 10)) == 478_410
    assert count(LeNet5()) == 61_706
    assert count(LeNet5(in_channels=3)) == 62_006
    assert count(ResNet20(10)) == 269_722  # 0.27 M, option A
    assert count(ResNet20(100)) == 269_722 + 90 * 65
    # 11,171,146 is the count of the variant without the last norm layer, whose gain and shift are 2 * 512
    assert count(PreActResNet18(10)) == 11_171_146 + 1024
    # 14,728,266 and 20,040,522 count a bias for every channel, which we leave to the norm layers' shift
    assert count(VGG16(10)) == 14_728_266 - (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512)
    assert count(VGG19(10)) == 20_040_522 - (2 * 64 + 2 * 128 + 4 * 256 + 8 * 512)
    # the same by the 14,714,688 of the convolutions of the original, biases included: a gain in place of each bias ...
    assert count(VGG16(10)) == 14_714_688 + (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512) + 5130
    assert count(ResNet18(10)) == 11_173_962
    assert count(DenseNet121(10)) == 6_956_298


def test_counts_agree_with_the_originals_for_imagenet():
    """Those begin with a 7x7 convolution (DenseNet with a norm after it) and end in 1,000 classes."""
    assert count(ResNet18(1000)) + conv(3, 64, 7) - conv(3, 64) == 11_689_512
    assert count(DenseNet121(1000)) + conv(3, 64, 7) + 2 * 64 - conv(3, 64) == 7_978_856


def test_counts_by_hand_at_another_width():
    w = 8
    norms = 2 * (w + 6 * w + 6 * 2 * w + 6 * 4 * w)
    convs = conv(3, w) + 6 * conv(w, w) + conv(w, 2 * w) + 5 * conv(2 * w, 2 * w)
    convs += conv(2 * w, 4 * w) + 5 * conv(4 * w, 4 * w)
    assert count(ResNet20(10, width=w)) == convs + norms + 4 * w * 10 + 10
    stages = [(w, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w)]
    convs = conv(3, w) + sum(conv(a, b) + 3 * conv(b, b) + (conv(a, b, 1) if a != b else 0) for a, b in stages)
    norms = 2 * (sum(a + 3 * b for a, b in stages) + 8 * w)
    assert count(PreActResNet18(10, width=w)) == convs + norms + 8 * w * 10 + 10
    norms = 2 * (w + sum(4 * b + (b if a != b else 0) for a, b in stages))
    assert count(ResNet18(10, width=w)) == convs + norms + 8 * w * 10 + 10
    convs = conv(1, w) + conv(w, 2 * w) + conv(2 * w, 4 * w) + conv(4 * w, 4 * w)
    convs += conv(4 * w, 8 * w) + 3 * conv(8 * w, 8 * w)
    assert count(VGG11(7, width=w, in_channels=1)) == convs + 2 * (1 + 2 + 8 + 32) * w + 8 * w * 7 + 7
    convs += conv(w, w) + conv(2 * w, 2 * w)
    assert count(VGG13(7, width=w, in_channels=1)) == convs + 2 * (2 + 4 + 8 + 32) * w + 8 * w * 7 + 7
    # 11-pixel images are 6 and then 3 pixels a side: 16 channels of 9 pixels
    expected = (conv(1, 8) + 8) + (conv(8, 16) + 16) + (144 * 32 + 32) + (32 * 10 + 10)
    assert count(CVNN(10, width=8, in_channels=1, pixels=11)) == expected


@pytest.mark.parametrize(("make", "shape"), NETWORKS)
def test_shapes_gradients_and_scale_at_the_start(make, shape):
    torch.manual_seed(0)
    net = make()
    output = net(torch.randn(16, *shape))
    assert output.shape == (16, 3)
    assert 0.01 < output.std() < 10  # neither dead nor blown up
    output.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize("make", [CVNN, ResNet20, ResNet18, PreActResNet18, DenseNet121, VGG16])
def test_networks_for_relu_start_as_kaiming_says(make):
    torch.manual_seed(0)
    net = make(width=8)
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in, n = module.weight[0].numel(), module.weight.numel()
            expected = (1 if name == "head" else 2) / fan_in
            assert abs(module.weight.square().mean() / expected - 1) < 5 * (2 / n) ** 0.5, name
            assert module.bias is None or not module.bias.any()
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert not module.bias.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda a: MLP(4, 2, (8,), a),
        lambda a: LeNet5(activation=a),
        lambda a: ResNet18(width=2, activation=a),
        lambda a: DenseNet121(width=2, activation=a),
        lambda a: VGG16(width=2, activation=a),
    ],
)
def test_the_activation_is_the_one_asked_for(make):
    net = make(nn.Softplus)
    kinds = {type(module) for module in net.modules()}
    assert nn.Softplus in kinds
    assert nn.ReLU not in kinds


def test_softplus_makes_preact_resnet_smooth():
    """Variational Laplace needs second derivatives that do not vanish."""
    torch.manual_seed(0)
    net = PreActResNet18(2, width=4, activation=nn.Softplus).double().eval()
    assert not any(isinstance(module, nn.ReLU) for module in net.modules())
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    direction = torch.randn_like(x)

    def along(t):
        return net(x + t * direction)[0, 0]

    step = 1e-3
    left, right = (along(sign * step) - 2 * along(0) + along(-sign * step) for sign in (1.0, 2.0))
    assert left != 0
    assert abs(right / left - 4) < 0.2  # a smooth function: the second difference grows with the square of the step


def test_mlp_is_its_equation():
    torch.manual_seed(0)
    net = MLP(6, 2, hidden=(5, 4), activation=nn.Tanh).double()
    x = torch.randn(3, 2, 3, dtype=torch.float64)
    w1, b1, w2, b2, w, b = net.parameters()
    h = torch.tanh(torch.tanh(x.reshape(3, 6) @ w1.T + b1) @ w2.T + b2)
    torch.testing.assert_close(net(x), h @ w.T + b)
    linear = MLP(6, 2, hidden=())
    assert [name for name, _ in linear.named_parameters()] == ["head.weight", "head.bias"]


def test_lenet_pads_28_to_32():
    torch.manual_seed(0)
    net = LeNet5()
    x = torch.randn(2, 1, 28, 28)
    framed = torch.zeros(2, 1, 32, 32)
    framed[:, :, 2:30, 2:30] = x
    torch.testing.assert_close(net(x), net(framed))
    first = net.body[0]
    same = nn.functional.conv2d(x, first.weight, first.bias, padding=2)  # the other way to say it
    torch.testing.assert_close(first(framed), same)


def test_lenet_refuses_other_sizes_and_teaches():
    with pytest.raises(InputError, match=r"these are 8x8.*interpolate"):
        LeNet5()(torch.zeros(1, 1, 8, 8))


def test_resnet_shortcut_is_option_a():
    """With the residual silenced, a shrinking block is every second pixel between zero channels, under ReLU."""
    net = ResNet20()
    block = next(b for b in net.body[3:] if b.stride == 2)
    nn.init.zeros_(block.residual[-1].weight)
    x = torch.randn(2, 16, 8, 8)
    expected = torch.zeros(2, 32, 4, 4)
    expected[:, 8:24] = x[:, :, ::2, ::2].clamp(min=0)
    assert torch.equal(block(x), expected)


def test_preact_shortcuts():
    """With the residual silenced, a block is the identity, or its projection of the activated input."""
    torch.manual_seed(0)
    net = PreActResNet18(width=4).eval()
    same, shrinking = net.body[1], net.body[3]
    x = torch.randn(2, 4, 8, 8)
    for block in (same, shrinking):
        nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(same(x), x)
    activated = torch.relu(x / (1 + 1e-5) ** 0.5)  # the norm layer's running mean 0 and variance 1
    weight = shrinking.projection.weight[:, :, 0, 0]
    expected = torch.einsum("oc,nchw->nohw", weight, activated[:, :, ::2, ::2])
    torch.testing.assert_close(shrinking(x), expected)


def test_resnet18_shortcuts():
    """With the residual silenced, a block is its input or the normed projection of it, activated."""
    torch.manual_seed(0)
    net = ResNet18(width=4).eval()
    same, shrinking = net.body[3], net.body[5]
    x = torch.randn(2, 4, 8, 8)
    for block in (same, shrinking):
        nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(same(x), x.clamp(min=0))
    weight = shrinking.shortcut[0].weight[:, :, 0, 0]
    expected = torch.einsum("oc,nchw->nohw", weight, x[:, :, ::2, ::2]) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(shrinking(x), expected.clamp(min=0))


def test_resnet18_halves_the_image_three_times():
    net, sizes = ResNet18(width=2), []
    h = torch.randn(1, 3, 32, 32)
    for layer in net.body:
        h = layer(h)
        sizes.append(tuple(h.shape[1:3]))
    assert sizes == [(2, 32)] * 5 + [(4, 16)] * 2 + [(8, 8)] * 2 + [(16, 4)] * 2


def test_densenet_is_its_equation():
    torch.manual_seed(0)
    net = DenseNet121(4, width=4, in_channels=1).double().eval()
    x = torch.randn(3, 1, 12, 12, dtype=torch.float64)

    def activated(h, norm):  # running mean 0 and variance 1
        return torch.relu(h / (1 + norm.eps) ** 0.5)

    layers = iter(net.body)
    h = nn.functional.conv2d(x, next(layers).weight, padding=1)
    shapes = []
    for stage, count in enumerate((6, 12, 24, 16)):
        if stage:
            norm, _, reduce, _ = next(layers)
            h = torch.einsum("oc,nchw->nohw", reduce.weight[:, :, 0, 0], activated(h, norm))
            if h.shape[-1] % 2:  # the mean of the pixels that are there
                ones = nn.functional.pad(torch.ones_like(h), (0, 1, 0, 1))
                h = nn.functional.pad(h, (0, 1, 0, 1))
                h = h.unfold(2, 2, 2).unfold(3, 2, 2).sum((-1, -2)) / ones.unfold(2, 2, 2).unfold(3, 2, 2).sum((-1, -2))
            else:
                h = h.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
        for _ in range(count):
            norm, _, narrow, second, _, wide = next(layers).added
            between = torch.einsum("oc,nchw->nohw", narrow.weight[:, :, 0, 0], activated(h, norm))
            h = torch.cat([nn.functional.conv2d(activated(between, second), wide.weight, padding=1), h], 1)
        shapes.append(tuple(h.shape[1:3]))
    assert shapes == [(16, 12), (32, 6), (64, 3), (64, 2)]
    h = activated(h, next(layers))
    torch.testing.assert_close(net(x), h.mean((2, 3)) @ net.head.weight.T + net.head.bias)


def test_densenet_wants_an_even_width():
    with pytest.raises(InputError, match=r"width=5.*even"):
        DenseNet121(width=5)


def test_vgg_is_its_equation_and_pools_small_images_to_one_pixel():
    torch.manual_seed(0)
    net = VGG16(4, width=2, in_channels=1).double().eval()
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    h, sizes = x, []
    layers = iter(net.body)
    for stage in (2, 2, 3, 3, 3):
        for _ in range(stage):
            weight, norm, _ = next(layers).weight, next(layers), next(layers)
            h = nn.functional.conv2d(h, weight, padding=1)
            h = torch.relu(h / (1 + norm.eps) ** 0.5)  # running mean 0 and variance 1
        next(layers)
        odd = h.shape[-1] % 2  # the edge is repeated, which changes no maximum
        h = nn.functional.pad(h, (0, odd, 0, odd), mode="replicate")
        h = h.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
        sizes.append(h.shape[-1])
    assert sizes == [14, 7, 4, 2, 1]
    torch.testing.assert_close(net(x), h[:, :, 0, 0] @ net.head.weight.T + net.head.bias)


@pytest.mark.parametrize(
    ("make", "depth"), [(lambda: VGG11(width=2), 9), (lambda: VGG13(width=2), 11), (lambda: VGG16(width=2), 14)]
)
def test_vgg_keeps_one_of_the_three_linear_layers(make, depth):
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in make().modules()) == depth


def test_depth_of_densenet_is_in_its_name():
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in DenseNet121(width=2).modules()) == 121


@pytest.mark.parametrize(
    ("make", "depth"), [(ResNet20, 20), (lambda: PreActResNet18(width=4), 18), (lambda: ResNet18(width=4), 18)]
)
def test_depth_is_in_the_name(make, depth):
    layers = [m for m in make().modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert sum(1 for m in layers if isinstance(m, nn.Linear) or m.kernel_size == (3, 3)) == depth
