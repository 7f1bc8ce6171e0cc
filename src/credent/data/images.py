"""Readers of the benchmark images: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN.

    x = (pixel / 255 - mean) / std,     mean and std per channel, over the training rows (validation rows excluded)

MNIST and Fashion-MNIST are the published gzipped idx files. The colour sets are `*_images.xz`: an xz stream of uint8
with shape (3, N, 32, 32), the planes R - G, G, B - G differenced along columns and rows, modulo 256, which two
cumulative sums undo exactly; labels are in `labels.npz`. docs/data.md describes the layout.

Shapes: x (n, channels, height, width) float32, y (n,) int64, `mean` and `std` (channels, 1, 1).

A stream that is zero but for its first corner is an image of one colour:

>>> stream = np.zeros((3, 1, 32, 32), np.uint8)
>>> stream[:, 0, 0, 0] = [255, 2, 3]                              # R - G = -1, G = 2, B - G = 3
>>> decode_planes(lzma.compress(stream.tobytes()))[0, :, 5, 7]    # R, G, B
array([1, 2, 5], dtype=uint8)
"""

import gzip
import lzma
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from credent.data.archive import damaged, read_arrays
from credent.data.cache import cached
from credent.data.dataset import Data, split_rows
from credent.data.directory import data_file
from credent.errors import InputError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.uint8]
Directory = str | Path | None

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR10_BATCHES = 5


def mnist(data_dir: Directory = None, seed: int = 0, val_share: float = 0.1) -> Data:
    """Handwritten digits, (1, 28, 28): 60,000 training (a tenth of them for validation) and 10,000 test images."""
    return _idx_set("mnist", "MNIST/raw", data_dir, seed, val_share)


def fashion_mnist(data_dir: Directory = None, seed: int = 0, val_share: float = 0.1) -> Data:
    """Clothing, (1, 28, 28): 60,000 training (a tenth of them for validation) and 10,000 test images."""
    return _idx_set("fashion_mnist", "FashionMNIST/raw", data_dir, seed, val_share)


def cifar10(data_dir: Directory = None, seed: int = 0, val_share: float = 0.1) -> Data:
    """CIFAR-10, (3, 32, 32): the official training batches that are there, from 1 on, and the 10,000 test images."""
    first = data_file(data_dir, "CIFAR10/train_images_1.xz")
    batches = [first]
    for number in range(2, CIFAR10_BATCHES + 1):
        batch = first.with_name(f"train_images_{number}.xz")
        if not batch.is_file():
            break
        batches.append(batch)
    x = np.concatenate([read_planes(batch) for batch in batches])
    x_test = read_planes(data_file(data_dir, "CIFAR10/test_images.xz"))
    y, y_test = read_arrays(data_file(data_dir, "CIFAR10/labels.npz"), "train", "test")
    y = y[: len(x)]  # the labels of all 50,000 are there, in official order
    return _standardised("cifar10", (x, y), (x_test, y_test), 10, seed, val_share)


def cifar100(data_dir: Directory = None, seed: int = 0, val_share: float = 0.1) -> Data:
    """CIFAR-100 with its 100 fine classes, (3, 32, 32)."""
    return _plane_set("cifar100", "CIFAR100", ("train_fine", "test_fine"), 100, data_dir, seed, val_share)


def svhn(data_dir: Directory = None, seed: int = 0, val_share: float = 0.1) -> Data:
    """Street-view house numbers, (3, 32, 32); digit 0 has label 0."""
    return _plane_set("svhn", "SVHN", ("train", "test"), 10, data_dir, seed, val_share)


def read_idx(path: Path) -> Pixels:
    """One gzipped idx file of unsigned bytes: images (n, rows, columns) or labels (n,)."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise damaged(path, f"it does not decompress ({error})") from error
    # header: two zero bytes, the type (8 = unsigned byte), the number of dimensions, then each dimension, big-endian
    start = 4 + 4 * content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else None
    if start is None or len(content) < start:
        raise damaged(path, "it does not begin like an idx file of unsigned bytes")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    values = np.frombuffer(content[start:], np.uint8)
    if values.size != np.prod(shape):
        raise damaged(path, f"its header promises shape {shape}, and {values.size} values follow")
    return values.reshape(shape)


def read_planes(path: Path) -> Pixels:
    """One `*_images.xz` file as (N, 3, 32, 32) RGB; decoding is slow, so the result is cached."""
    try:
        return cached(path, decode_planes)
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise damaged(path, f"it does not decode to images ({error})") from error


def decode_planes(content: bytes) -> Pixels:
    """Undo the xz stream, the differences and the colour planes: (N, 3, 32, 32) RGB, exact."""
    differences = np.frombuffer(lzma.decompress(content), np.uint8).reshape(3, -1, 32, 32)
    planes = differences.cumsum(-1, dtype=np.uint8).cumsum(-2, dtype=np.uint8)
    planes[[0, 2]] += planes[1]
    return np.ascontiguousarray(planes.transpose(1, 0, 2, 3))


def _idx_set(name: str, folder: str, data_dir: Directory, seed: int, val_share: float) -> Data:
    x, y, x_test, y_test = (read_idx(data_file(data_dir, f"{folder}/{file}")) for file in IDX_FILES)
    return _standardised(name, (x[:, None], y), (x_test[:, None], y_test), 10, seed, val_share)


def _plane_set(
    name: str, folder: str, keys: tuple[str, str], num_classes: int, data_dir: Directory, seed: int, val_share: float
) -> Data:
    x, x_test = (read_planes(data_file(data_dir, f"{folder}/{part}_images.xz")) for part in ("train", "test"))
    y, y_test = read_arrays(data_file(data_dir, f"{folder}/labels.npz"), *keys)
    return _standardised(name, (x, y), (x_test, y_test), num_classes, seed, val_share)


def _standardised(
    name: str,
    train: tuple[Pixels, Labels],
    test: tuple[Pixels, Labels],
    num_classes: int,
    seed: int,
    val_share: float,
) -> Data:
    for which, (x, y) in (("training", train), ("test", test)):
        if len(x) != len(y) or y.max() >= num_classes:
            raise InputError(
                f"{name}: {len(x)} {which} images came with {len(y)} labels up to {y.max()}; there must be one label "
                f"below {num_classes} for each image. The files are of different origin: fetch them again together."
            )
    rows, val_rows = split_rows(len(train[0]), val_share, seed)
    x_train = train[0][rows]
    mean, std = _channel_moments(x_train)

    def part(pixels: Pixels, labels: Labels) -> TensorDataset:
        x = torch.from_numpy(pixels.astype(np.float32)).div_(255).sub_(mean).div_(std)
        return TensorDataset(x, torch.from_numpy(labels.astype(np.int64)))

    return Data(
        name=name,
        train=part(x_train, train[1][rows]),
        val=part(train[0][val_rows], train[1][val_rows]),
        test=part(*test),
        num_classes=num_classes,
        shape=x_train.shape[1:],
        mean=mean,
        std=std,
    )


def _channel_moments(pixels: Pixels) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of pixel / 255 per channel, (C, 1, 1), from exact integer sums in little memory."""
    total = np.zeros(pixels.shape[1])
    squares = np.zeros(pixels.shape[1])
    for start in range(0, len(pixels), 1000):
        block = pixels[start : start + 1000].astype(np.uint32)
        total += block.sum(axis=(0, 2, 3))
        squares += (block * block).sum(axis=(0, 2, 3))
    count = pixels.size / pixels.shape[1]
    mean, variance = total / count, squares / count - (total / count) ** 2
    std = np.where(variance > 0, np.sqrt(variance.clip(0)), 255.0)  # a channel of one value is only centred
    return torch.from_numpy(mean / 255).float()[:, None, None], torch.from_numpy(std / 255).float()[:, None, None]
