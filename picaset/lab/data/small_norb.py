"""smallNORB: photographs of fifty toys from many viewpoints (LeCun, Huang and Bottou 2004).

    load_small_norb     both halves, from a folder: the compact files if they are there, else the original ones
    read_original       one half from its three original files, as distributed, compressed or not

An original file is a magic number, the number of dimensions, at least three dimensions, and the numbers themselves, all
little-endian. It has no checksum (its compressed form has), so that a changed pixel is not noticed; everything else is:
sizes and kinds by the header, labels because every viewpoint must be there once.
"""

import gzip
import struct
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray

from picaset.lab.data.folders import MissingDataError
from picaset.lab.data.views import (
    MOST,
    SIZE,
    TEST_INSTANCES,
    TRAINING_INSTANCES,
    Views,
    check_labels,
    read_views,
    write_views,
)

Half = Literal["training", "testing"]
Kind = Literal["dat", "cat", "info"]

STEMS = {"training": "smallnorb-5x46789x9x18x6x2x96x96-training", "testing": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
COMPACT = {"training": "small_norb_train_48.npz", "testing": "small_norb_test_48.npz"}
INSTANCES = {"training": TRAINING_INSTANCES, "testing": TEST_INSTANCES}

BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54
MAGIC = {"dat": BYTES, "cat": INTEGERS, "info": INTEGERS}
INNER = {"dat": (2, 2 * SIZE, 2 * SIZE), "cat": (), "info": (4,)}
"""Dimensions of one example."""
CHUNK = 500
"""Examples that are read at once, so that a file which claims too much ends before much is allocated."""


def has_small_norb(root: Path) -> bool:
    """Whether its folder is below this one; what that lacks is said when it is read."""
    return (root / "smallnorb").is_dir()


def load_small_norb(root: Path) -> tuple[Views, Views]:
    """The training and the test objects, from ``root/smallnorb``.

    Original files are read once, and their compact form is written beside them where that is allowed.
    """
    training, testing = (load_half(root / "smallnorb", half) for half in ("training", "testing"))
    return training, testing


def load_half(folder: Path, half: Half) -> Views:
    compact = folder / COMPACT[half]
    if compact.is_file():
        return read_views(compact, INSTANCES[half])
    views = read_original(folder, half)
    with suppress(OSError):  # a folder for reading only, or a full disk: it works without
        write_views(compact, views)
    return views


def read_original(folder: Path, half: Half) -> Views:
    """One half from its ``dat``, ``cat`` and ``info`` files, the images averaged down to 48x48."""
    category, named = read_numbers(folder, half, "cat")
    info, path = read_numbers(folder, half, "info")
    if len(info) != len(category):
        raise ValueError(f"{path} has {len(info)} examples and the cat file {len(category)}; are they of one download?")
    labels = {"category": category, "instance": info[:, 0], "elevation": info[:, 1], "azimuth": info[:, 2],
              "lighting": info[:, 3]}  # fmt: skip
    check_labels(labels, INSTANCES[half], where=f"{path} with {named.name}")
    images = read_images(folder, half, count=len(category))
    return Views(images, *(torch.as_tensor(values.astype(np.int64)) for values in labels.values()))


def read_numbers(folder: Path, half: Half, kind: Kind) -> tuple[NDArray[np.int32], Path]:
    with opened(folder, half, kind) as (file, path):
        shape = read_header(file, path, kind)
        size = 4 * int(np.prod(shape))
        content = file.read(size + 1)
    check_length(len(content), size, path)
    return np.frombuffer(content, dtype="<i4").reshape(shape), path


def read_images(folder: Path, half: Half, *, count: int) -> UInt8[torch.Tensor, "N 2 S S"]:
    with opened(folder, half, "dat") as (file, path):
        shape = read_header(file, path, "dat")
        if shape[0] != count:
            raise ValueError(f"{path} has {shape[0]} examples and its labels {count}; are they of one download?")
        parts = list[NDArray[np.uint8]]()
        one = int(np.prod(INNER["dat"]))
        for start in range(0, count, CHUNK):
            wanted = min(CHUNK, count - start)
            content = file.read(wanted * one)
            if len(content) != wanted * one:
                check_length(start * one + len(content), count * one, path)
            parts.append(halved(np.frombuffer(content, dtype=np.uint8).reshape(wanted, *INNER["dat"])))
        check_length(count * one + len(file.read(1)), count * one, path)
    return torch.as_tensor(np.concatenate(parts))


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Every two by two pixels averaged, to the nearest whole number."""
    total = images[..., ::2, :].astype(np.uint16) + images[..., 1::2, :]
    return ((total[..., ::2] + total[..., 1::2] + 2) // 4).astype(np.uint8)


def find(folder: Path, half: Half, kind: Kind) -> Path | None:
    names = (f"{STEMS[half]}-{kind}.mat", f"{STEMS[half]}-{kind}.mat.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)


@contextmanager
def opened(folder: Path, half: Half, kind: Kind) -> Generator[tuple[BufferedIOBase, Path]]:
    """A file for reading, decompressed where it is compressed, whatever its name says."""
    path = find(folder, half, kind)
    if path is None:
        raise MissingDataError(
            f"There is no {STEMS[half]}-{kind}.mat in {folder}, and no .mat.gz of it; smallNORB is six such files. "
            "Complete them, or take generated toys: experiments whose names end in -toys."
        )
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            yield gzip.GzipFile(fileobj=raw) if compressed else raw, path
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(
                f"{path} is not a whole gzip file ({error}); was it cut short? Download it again."
            ) from None


def read_header(file: BufferedIOBase, path: Path, kind: Kind) -> tuple[int, ...]:
    """The dimensions, which must be those of a file of this kind."""
    rank = 1 + len(INNER[kind])
    slots = max(rank, 3)
    start = file.read(8 + 4 * slots)
    if len(start) < 8 + 4 * slots:
        raise ValueError(f"{path} ends within its header; was it cut short? Download it again.")
    magic, dimensions, *shape = struct.unpack(f"<{2 + slots}i", start)
    if magic != MAGIC[kind]:
        raise ValueError(
            f"{path} must begin with {MAGIC[kind]:#x}, as {kind} files do; it begins with {magic & 0xFFFFFFFF:#x}. "
            "Is it another file under this name?"
        )
    expected = (*INNER[kind], *(1,) * (slots - rank))
    if dimensions != rank or tuple(shape[1:]) != expected or not 1 <= shape[0] <= MOST:
        raise ValueError(
            f"{path} must have {rank} dimensions, {('N', *INNER[kind])} with N from 1 to {MOST}; it says "
            f"{dimensions}, {tuple(shape)}. Is it another file under this name?"
        )
    return tuple(shape[:rank])


def check_length(found: int, expected: int, path: Path) -> None:
    if found != expected:
        how = "at least one more" if found > expected else f"{found}"
        raise ValueError(
            f"{path} must hold {expected} bytes after its header; it holds {how}. Was it cut short, or appended to?"
        )
