"""Pictures of toys from many viewpoints: one value for smallNORB and for its stand-in.

A toy of one of five categories and ten instances stands on a turntable and is photographed by two cameras at nine
elevations, eighteen azimuths and six lightings. Azimuths are counted in tens of degrees (0, 2, ..., 34), elevations in
steps of five degrees from 30 (0, ..., 8), as the original files count them.

Dimensions:  N photographs, each by two cameras   S = 48 pixels

Views in one compact file: a NumPy archive of 8-bit arrays, ``images``, ``category``, ``instance``, ``elevation``,
``azimuth`` and ``lighting``.

The archive's checksums find every damaged byte. What a file claims is compared with what it can hold before anything of
that size is allocated, and nothing of it is ever unpickled.
"""

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from picaset.files import replacing

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""By label."""
SIZE = 48
"""Pixels of an image, in each direction."""
LABELS = {"category": range(5), "instance": range(10), "elevation": range(9), "azimuth": range(0, 36, 2),
          "lighting": range(6)}  # fmt: skip
"""What each label may be."""
TRAINING_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
TRAINING_AZIMUTHS = (30, 32, 34, 0, 2, 4)
"""300 to 40 degrees."""
TRAINING_ELEVATIONS = (0, 1, 2)
"""30 to 40 degrees."""

Split = Literal["azimuth", "elevation"]


@dataclass(frozen=True, eq=False)
class Views:
    """Photographs with everything that is known of them.

    Shapes:
        images      (N, 2, S, S)    8 bits, the two cameras side by side
        category    (N,)            and so the other labels; see ``LABELS``
    """

    images: UInt8[Tensor, "N 2 S S"]
    category: Int[Tensor, " N"]
    instance: Int[Tensor, " N"]
    elevation: Int[Tensor, " N"]
    azimuth: Int[Tensor, " N"]
    lighting: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.images)

    def where(self, chosen: Bool[Tensor, " N"]) -> "Views":
        """Those photographs that are chosen."""
        return Views(self.images[chosen], *(getattr(self, name)[chosen] for name in LABELS))

    def familiar(self, split: Split) -> Bool[Tensor, " N"]:
        """Which photographs are from viewpoints that training has, of any object."""
        if split == "azimuth":
            return torch.isin(self.azimuth, torch.tensor(TRAINING_AZIMUTHS))
        return torch.isin(self.elevation, torch.tensor(TRAINING_ELEVATIONS))


def degrees_from_training(split: Split, value: int) -> int:
    """How far an azimuth or elevation is from the nearest that training has.

    Example:
        >>> [degrees_from_training("azimuth", azimuth) for azimuth in (0, 6, 16, 18, 28)]
        [0, 20, 120, 120, 20]
        >>> [degrees_from_training("elevation", elevation) for elevation in (1, 3, 8)]
        [0, 5, 30]
    """
    if split == "elevation":
        return 5 * min(abs(value - known) for known in TRAINING_ELEVATIONS)
    around = [(value - known) % 36 for known in TRAINING_AZIMUTHS]
    return 10 * min(min(turn, 36 - turn) for turn in around)


def check_labels(labels: Mapping[str, NDArray[np.integer]], instances: tuple[int, ...], *, where: str) -> None:
    """Whether these are labels of a whole grid of viewpoints, each of them once, of objects with these instances.

    A single wrong label makes two photographs of one viewpoint, or a viewpoint that the grid does not have.
    """
    allowed = {name: instances if name == "instance" else tuple(values) for name, values in LABELS.items()}
    for name, values in allowed.items():
        wrong = ~np.isin(labels[name], values)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{where}: {name} must be one of {', '.join(map(str, values))}; example {row} has "
                f"{int(labels[name][row])}. Is this the right file, and whole?"
            )
    count = len(labels["category"])
    grid = int(np.prod([len(np.unique(labels[name])) for name in LABELS]))
    different = len(np.unique(np.stack([labels[name] for name in LABELS]), axis=1).T)
    if not count == grid == different:
        raise ValueError(
            f"{where}: every combination of category, instance, elevation, azimuth and lighting must be there once; "
            f"{count} examples have {different} different of {grid} combinations. Is this the right file, and whole?"
        )


MOST = 100_000
"""Photographs in one file; smallNORB has 24 300."""
HEADER = re.compile(rb"\{'descr': '(\S+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \}\s*")
UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError, RuntimeError, ValueError)
"""What reading a damaged archive may end in; an unknown kind of archive is a RuntimeError."""


def write_views(path: Path, views: Views) -> None:
    """Write a file whole or not at all."""
    arrays = {name: getattr(views, name).numpy().astype(np.uint8) for name in ("images", *LABELS)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_views(path: Path, instances: tuple[int, ...]) -> Views:
    """Read a file of objects with these instances; anything else is refused, and anything damaged."""
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
            images = read_array(archive, "images", (2, SIZE, SIZE))
            labels = {name: read_array(archive, name, ()) for name in LABELS}
        except UNREADABLE as error:
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"{path} is not a whole file of views ({reason}); was it cut short? Copy it again, or remove it."
            ) from None
    for name, values in labels.items():
        if len(values) != len(images):
            raise ValueError(f"{path}: there are {len(images)} images and {len(values)} values of {name}.")
    check_labels(labels, instances, where=str(path))
    return Views(torch.as_tensor(images), *(torch.as_tensor(values.astype(np.int64)) for values in labels.values()))


def read_array(archive: zipfile.ZipFile, name: str, one: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array of bytes with examples of shape ``one``; its header must say what the archive's directory says."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} must be stored or deflated, not by method {member.compress_type}")
    with archive.open(member) as file:
        start = file.read(10)
        if start[:8] != b"\x93NUMPY\x01\x00":
            raise ValueError(f"{name} is not a NumPy array of version 1")
        header = file.read(int.from_bytes(start[8:], "little"))
        described = HEADER.fullmatch(header)
        if described is None or described[1] != b"|u1" or described[2] != b"False":
            raise ValueError(f"{name} must be an array of 8-bit numbers in C order")
        shape = tuple(int(part) for part in described[3].split(b",") if part.strip())
        if not shape or shape[1:] != one or not 1 <= shape[0] <= MOST:
            raise ValueError(f"{name} must have shape {('N', *one)} with N from 1 to {MOST}; got {shape}")
        size = math.prod(shape)
        # Deflate makes about a thousand bytes of one at most, so what claims more is not there.
        if len(start + header) + size != member.file_size or size > 1100 * (member.compress_size + 100):
            raise ValueError(f"{name} claims {size} bytes and cannot hold them")
        content = file.read()
    if len(content) != size:
        raise ValueError(f"{name} holds {len(content)} of {size} bytes")
    return np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)
