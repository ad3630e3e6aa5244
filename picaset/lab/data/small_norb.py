"""smallNORB: images of fifty toys from many viewpoints (LeCun, Huang and Bottou 2004).

    load_small_norb     both halves, from the compact files if they exist, otherwise from the original ones
    read_original       one half from its three original files, compressed or not

An original file is a magic number, the number of dimensions, at least three sizes and the data, all little-endian. It
has no checksum unless it is compressed, so a changed pixel is not detected. Everything else is: kinds and sizes by the
header, labels because every viewpoint must occur once.
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
    MAX_EXAMPLES,
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
INNER_SHAPE = {"dat": (2, 2 * SIZE, 2 * SIZE), "cat": (), "info": (4,)}
"""Shape of one example in each kind of file."""
CHUNK = 500
"""Number of examples read at a time, so that a header that claims too many does not cause a large allocation."""


def has_small_norb(root: Path) -> bool:
    """Return whether ``root/smallnorb`` exists; reading it reports missing files."""
    return (root / "smallnorb").is_dir()


def load_small_norb(root: Path) -> tuple[Views, Views]:
    """Load the training and the test half from ``root/smallnorb``.

    After the original files are read for the first time, compact files are written beside them if possible.
    """
    training, testing = (load_half(root / "smallnorb", half) for half in ("training", "testing"))
    return training, testing


def load_half(folder: Path, half: Half) -> Views:
    compact = folder / COMPACT[half]
    if compact.is_file():
        return read_views(compact, INSTANCES[half])
    views = read_original(folder, half)
    with suppress(OSError):  # the compact file is optional: the folder may be read-only, or the disk full
        write_views(compact, views)
    return views


def read_original(folder: Path, half: Half) -> Views:
    """Read one half from its ``dat``, ``cat`` and ``info`` files; images are downsampled to 48 x 48."""
    category, category_path = read_integers(folder, half, "cat")
    info, path = read_integers(folder, half, "info")
    if len(info) != len(category):
        raise ValueError(f"{path} has {len(info)} examples and the cat file {len(category)}; are they of one download?")
    labels = {"category": category, "instance": info[:, 0], "elevation": info[:, 1], "azimuth": info[:, 2],
              "lighting": info[:, 3]}  # fmt: skip
    check_labels(labels, INSTANCES[half], where=f"{path} with {category_path.name}")
    images = read_images(folder, half, count=len(category))
    return Views(images, *(torch.as_tensor(values.astype(np.int64)) for values in labels.values()))


def read_integers(folder: Path, half: Half, kind: Kind) -> tuple[NDArray[np.int32], Path]:
    """Return the array in a file of integers, and the path of the file."""
    with opened(folder, half, kind) as (file, path):
        shape = read_header(file, path, kind)
        size = 4 * int(np.prod(shape))
        content = file.read(size + 1)
    check_size(len(content), size, path)
    return np.frombuffer(content, dtype="<i4").reshape(shape), path


def read_images(folder: Path, half: Half, *, count: int) -> UInt8[torch.Tensor, "N 2 S S"]:
    with opened(folder, half, "dat") as (file, path):
        shape = read_header(file, path, "dat")
        if shape[0] != count:
            raise ValueError(f"{path} has {shape[0]} examples and its labels {count}; are they of one download?")
        chunks = list[NDArray[np.uint8]]()
        example_size = int(np.prod(INNER_SHAPE["dat"]))
        for start in range(0, count, CHUNK):
            length = min(CHUNK, count - start)
            content = file.read(length * example_size)
            if len(content) != length * example_size:
                check_size(start * example_size + len(content), count * example_size, path)
            chunks.append(downsampled(np.frombuffer(content, dtype=np.uint8).reshape(length, *INNER_SHAPE["dat"])))
        check_size(count * example_size + len(file.read(1)), count * example_size, path)
    return torch.as_tensor(np.concatenate(chunks))


def downsampled(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images of half the height and width, each pixel the rounded mean of two by two."""
    total = images[..., ::2, :].astype(np.uint16) + images[..., 1::2, :]
    return ((total[..., ::2] + total[..., 1::2] + 2) // 4).astype(np.uint8)


@contextmanager
def opened(folder: Path, half: Half, kind: Kind) -> Generator[tuple[BufferedIOBase, Path]]:
    """Open an original file; the content, not the name, decides whether it is decompressed."""
    name = f"{STEMS[half]}-{kind}.mat"
    path = next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)
    if path is None:
        raise MissingDataError(
            f"There is no {name} in {folder}, and no {name}.gz; smallNORB is six such files. "
            "Add the missing ones, or use generated toys: experiments whose names end in -toys."
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
    """Return the shape in the header, which must be that of a file of this kind."""
    rank = 1 + len(INNER_SHAPE[kind])
    num_sizes = max(rank, 3)
    start = file.read(8 + 4 * num_sizes)
    if len(start) < 8 + 4 * num_sizes:
        raise ValueError(f"{path} ends within its header; was it cut short? Download it again.")
    magic, dimensions, *shape = struct.unpack(f"<{2 + num_sizes}i", start)
    if magic != MAGIC[kind]:
        raise ValueError(
            f"{path} must begin with {MAGIC[kind]:#x}, as {kind} files do; it begins with {magic & 0xFFFFFFFF:#x}. "
            "Is it another file under this name?"
        )
    expected = (*INNER_SHAPE[kind], *(1,) * (num_sizes - rank))
    if dimensions != rank or tuple(shape[1:]) != expected or not 1 <= shape[0] <= MAX_EXAMPLES:
        raise ValueError(
            f"{path} must have {rank} dimensions, {('N', *INNER_SHAPE[kind])} with N from 1 to {MAX_EXAMPLES}; its "
            f"header says {dimensions}, {tuple(shape)}. Is it another file under this name?"
        )
    return tuple(shape[:rank])


def check_size(size: int, expected: int, path: Path) -> None:
    if size != expected:
        held = "at least one more" if size > expected else f"{size}"
        raise ValueError(
            f"{path} must hold {expected} bytes after its header; it holds {held}. Was it cut short, or appended to?"
        )
