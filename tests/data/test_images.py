import gzip
import lzma

import numpy as np
import pytest
import torch

from credent.data.images import IDX_FILES, cifar10, cifar100, fashion_mnist, mnist, read_idx, read_planes, svhn
from credent.errors import InputError

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def counts(part):
    return torch.bincount(part[:][1]).tolist()


@pytest.fixture
def small(tmp_path, write_idx):
    """A directory with 40 training and 10 test images in place of MNIST."""
    random = np.random.default_rng(0)
    x, x_test = (random.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in (40, 10))
    y, y_test = (np.arange(n, dtype=np.uint8) % 10 for n in (40, 10))
    for name, array in zip(IDX_FILES, (x, y, x_test, y_test), strict=True):
        write_idx(tmp_path / "MNIST/raw" / name, array)
    return tmp_path, x, x_test


def test_scale_comes_from_training_rows_and_leads_back_to_the_pixels(small):
    directory, x, x_test = small
    data = mnist(directory, seed=1, val_share=0.25)
    assert (len(data.train), len(data.val), len(data.test)) == (30, 10, 10)
    pixels = torch.cat([part[:][0] for part in (data.train, data.val)]) * data.std + data.mean
    assert sorted((pixels * 255).round().int().flatten(1).tolist()) == sorted(x.reshape(40, -1).astype(int).tolist())
    torch.testing.assert_close(data.train[:][0].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(data.train[:][0].var(correction=0), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert abs(data.val[:][0].mean()) > 1e-5
    back = ((data.test[:][0] * data.std + data.mean) * 255).round().numpy()
    assert np.array_equal(back[:, 0], x_test)
    assert data.mean.shape == data.std.shape == (1, 1, 1)
    assert data.shape == (1, 28, 28)


def test_images_keep_their_labels_in_the_split(small):
    directory, x, _ = small
    data = mnist(directory, seed=2, val_share=0.5)
    for part in (data.train, data.val):
        for image, label in zip(*part[:], strict=True):
            pixels = ((image[0] * data.std[0] + data.mean[0]) * 255).round().numpy()
            (row,) = np.flatnonzero((x == pixels).all((1, 2)))
            assert row % 10 == label


def test_a_blank_channel_does_not_divide_by_zero(tmp_path, write_idx):
    for name in IDX_FILES:
        array = np.full((20, 28, 28), 7, np.uint8) if "images" in name else np.zeros(20, np.uint8)
        write_idx(tmp_path / "MNIST/raw" / name, array)
    assert mnist(tmp_path).train[:][0].abs().max() < 1e-6


def test_planes_decode_exactly(tmp_path, write_planes):
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    write_planes(tmp_path / "x.xz", images)
    assert np.array_equal(read_planes(tmp_path / "x.xz"), images)
    assert np.array_equal(read_planes(tmp_path / "x.xz"), images)  # and again from the cache


def test_cifar10_takes_the_batches_that_are_there_in_order(tmp_path, write_planes):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (5, 6, 3, 32, 32), dtype=np.uint8)
    folder = tmp_path / "CIFAR10"
    for number in (1, 2, 4):  # 3 is missing, so 4 is not in order
        write_planes(folder / f"train_images_{number}.xz", images[number])
    write_planes(folder / "test_images.xz", images[0])
    labels = random.integers(0, 10, 50, dtype=np.uint8)
    np.savez(folder / "labels.npz", train=labels, test=labels[:6])
    data = cifar10(tmp_path, val_share=0)
    assert data.train[:][1].tolist() == labels[:12].tolist()
    pixels = ((data.train[:][0] * data.std + data.mean) * 255).round().numpy()
    assert np.array_equal(pixels, np.concatenate([images[1], images[2]]))
    per_channel = np.concatenate([images[1], images[2]]).astype(float).transpose(1, 0, 2, 3).reshape(3, -1) / 255
    np.testing.assert_allclose(data.mean.flatten(), per_channel.mean(1), rtol=1e-6)
    np.testing.assert_allclose(data.std.flatten(), per_channel.std(1), rtol=1e-6)


def test_cifar100_has_its_fine_labels(tmp_path, write_planes):
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 3, 32, 32), dtype=np.uint8)
    fine = np.array([[99, 0, 42, 7, 7], [1, 2, 3, 4, 98]], np.uint8)
    for index, part in enumerate(("train", "test")):
        write_planes(tmp_path / f"CIFAR100/{part}_images.xz", images[index])
    np.savez(tmp_path / "CIFAR100/labels.npz", train_fine=fine[0], test_fine=fine[1], fine_to_coarse=np.zeros(100))
    data = cifar100(tmp_path, val_share=0)
    assert data.num_classes == 100
    assert data.train[:][1].tolist() == fine[0].tolist()
    assert data.test[:][1].tolist() == fine[1].tolist()
    assert np.array_equal(((data.test[:][0] * data.std + data.mean) * 255).round().numpy(), images[1])


@pytest.mark.parametrize(
    "damage", ["truncated", "not gzip", "flipped", "no block", "short header", "wrong type", "too few"]
)
def test_a_damaged_idx_file_teaches(small, write_idx, damage):
    directory, _, _ = small
    path = directory / "MNIST/raw" / IDX_FILES[0]
    content = path.read_bytes()
    plain = gzip.decompress(content)
    flipped, no_block = bytearray(content), bytearray(content)
    flipped[len(content) // 2] ^= 0xFF  # the checksum will tell
    no_block[10] = 0xFF  # the first byte after gzip's header: a kind of block that does not exist
    path.write_bytes(
        {
            "truncated": content[:-100],
            "not gzip": b"<html>not found</html>",
            "flipped": bytes(flipped),
            "no block": bytes(no_block),
            "short header": gzip.compress(plain[:6]),
            "wrong type": gzip.compress(b"\0\0\x0d" + plain[3:]),
            "too few": gzip.compress(plain[:-784]),
        }[damage]
    )
    with pytest.raises(InputError, match="is damaged") as caught:
        mnist(directory)
    assert str(path) in str(caught.value)
    assert "download" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no xz", lzma.compress(b"abc"), lzma.compress(bytes(3 * 1024))[:-8]])
def test_a_damaged_xz_file_teaches(tmp_path, content):
    (tmp_path / "x.xz").write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        read_planes(tmp_path / "x.xz")


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_damaged_labels_teach(tmp_path, write_planes, content):
    for name in ("train", "test"):
        write_planes(tmp_path / f"SVHN/{name}_images.xz", np.zeros((4, 3, 32, 32), np.uint8))
    path = tmp_path / "SVHN/labels.npz"
    if content is None:
        np.savez(path, train=np.zeros(4, np.uint8))  # no `test`
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        svhn(tmp_path)


@pytest.mark.parametrize("labels", [np.zeros(39, np.uint8), np.full(40, 10, np.uint8)])
def test_labels_that_do_not_belong_teach(small, write_idx, labels):
    directory, _, _ = small
    write_idx(directory / "MNIST/raw" / IDX_FILES[1], labels)
    with pytest.raises(InputError, match="one label below 10 for each image"):
        mnist(directory)


def test_read_idx_gives_the_shape_of_the_header(tmp_path, write_idx):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "a.gz", array)
    assert np.array_equal(read_idx(tmp_path / "a.gz"), array)


def test_real_mnist_is_the_published_one(real_data):
    data = mnist(real_data, val_share=0)
    assert counts(data.train) == MNIST_TRAIN
    assert counts(data.test) == MNIST_TEST
    assert data.train[:][1][:5].tolist() == [5, 0, 4, 1, 9]
    assert round(data.mean.item(), 4) == 0.1307
    assert round(data.std.item(), 4) == 0.3081


def test_real_fashion_mnist_is_the_published_one(real_data):
    data = fashion_mnist(real_data, val_share=0)
    assert counts(data.train) == [6000] * 10
    assert counts(data.test) == [1000] * 10
    assert data.test[:][1][0] == 9  # an ankle boot
    assert round(data.mean.item(), 4) == 0.2860
    assert round(data.std.item(), 4) == 0.3530


def test_real_cifar10_batches_are_in_official_order(real_data, tmp_path):
    (tmp_path / "CIFAR10").mkdir()
    for name in ("train_images_1.xz", "test_images.xz", "labels.npz"):  # one batch is enough, and quick
        (tmp_path / "CIFAR10" / name).symlink_to(real_data / "CIFAR10" / name)
    data = cifar10(tmp_path, val_share=0)
    assert len(data.train) == 10_000
    assert counts(data.train) == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]  # data_batch_1
    assert data.train[:][1][:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert data.test[:][1][:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert counts(data.test) == [1000] * 10
    # the published constants of all 50,000; a tenth of a standard deviation would be 0.025
    torch.testing.assert_close(data.mean.flatten(), torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.003, rtol=0)
    torch.testing.assert_close(data.std.flatten(), torch.tensor([0.2470, 0.2435, 0.2616]), atol=0.003, rtol=0)


@pytest.mark.slow
def test_real_cifar100_is_balanced(real_data):
    data = cifar100(real_data, val_share=0)
    assert counts(data.train) == counts(data.test) == [100] * 100
    assert data.num_classes == 100
    torch.testing.assert_close(data.mean.flatten(), torch.tensor([0.5071, 0.4865, 0.4409]), atol=0.005, rtol=0)
    torch.testing.assert_close(data.std.flatten(), torch.tensor([0.2673, 0.2564, 0.2762]), atol=0.005, rtol=0)


def test_real_svhn_is_balanced(real_data):
    data = svhn(real_data, val_share=0)
    assert counts(data.train) == counts(data.test) == [1000] * 10
    # every digit equally often, so only near the (0.4524, 0.4525, 0.4690) of the whole test set
    pixels = data.test[:][0].mean((0, 2, 3)) * data.std.flatten() + data.mean.flatten()
    torch.testing.assert_close(pixels, torch.tensor([0.4524, 0.4525, 0.4690]), atol=0.02, rtol=0)


@pytest.mark.slow
def test_real_cifar10_whole(real_data):
    data = cifar10(real_data)
    assert len(data.train) + len(data.val) == 30_000
