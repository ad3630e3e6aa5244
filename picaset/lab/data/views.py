"""Images of toys from many viewpoints: the common type of smallNORB and its stand-in, and its compact file.

Toys of five categories with ten instances each stand on a turntable and are photographed by two cameras at nine
elevations, eighteen azimuths and six lightings. Azimuths are multiples of ten degrees (0, 2, ..., 34), elevations steps
of five degrees from 30 (0, ..., 8), as in the original files.

A compact file is a NumPy archive of the 8-bit arrays ``images``, ``category``, ``instance``, ``elevation``, ``azimuth``
and ``lighting``. Its checksums detect every damaged byte. Sizes in its headers are compared with the size of the file
before anything is allocated, and nothing is unpickled.

Dimensions:  N examples, each seen by two cameras   S = 48 pixels
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

from picaset.files import atomic_write

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""Names of the categories, in the order of their labels."""
SIZE = 48
"""Height and width of an image in pixels."""
LABELS = {"category": range(5), "instance": range(10), "elevation": range(9), "azimuth": range(0, 36, 2),
          "lighting": range(6)}  # fmt: skip
"""Values of each label."""
TRAINING_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
TRAINING_AZIMUTHS = (30, 32, 34, 0, 2, 4)
"""300 to 40 degrees."""
TRAINING_ELEVATIONS = (0, 1, 2)
"""30 to 40 degrees."""
MAX_EXAMPLES = 100_000
"""Largest number of examples in a file; smallNORB has 24 300."""
HEADER = re.compile(rb"\{'descr': '(\S+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \}\s*")
ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError, RuntimeError, ValueError)
"""Errors of reading a damaged archive; an unknown compression method is a RuntimeError."""

Split = Literal["azimuth", "elevation"]


@dataclass(frozen=True, eq=False)
class Views:
    """Images with their labels.

    Shapes:
        images      (N, 2, S, S)    bytes; the second dimension is the camera
        category    (N,)            as are the other labels; see ``LABELS``
    """

    images: UInt8[Tensor, "N 2 S S"]
    category: Int[Tensor, " N"]
    instance: Int[Tensor, " N"]
    elevation: Int[Tensor, " N"]
    azimuth: Int[Tensor, " N"]
    lighting: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.images)

    def where(self, mask: Bool[Tensor, " N"]) -> "Views":
        """Select examples by a mask."""
        return Views(self.images[mask], *(getattr(self, name)[mask] for name in LABELS))

    def familiar(self, split: Split) -> Bool[Tensor, " N"]:
        """Return a mask of the examples whose viewpoint occurs in training."""
        if split == "azimuth":
            return torch.isin(self.azimuth, torch.tensor(TRAINING_AZIMUTHS))
        return torch.isin(self.elevation, torch.tensor(TRAINING_ELEVATIONS))


def degrees_from_training(split: Split, value: int) -> int:
    """Return the angle between an azimuth or elevation and the nearest one in training.

    Example:
        >>> [degrees_from_training("azimuth", azimuth) for azimuth in (0, 6, 16, 18, 28)]
        [0, 20, 120, 120, 20]
        >>> [degrees_from_training("elevation", elevation) for elevation in (1, 3, 8)]
        [0, 5, 30]
    """
    if split == "elevation":
        return 5 * min(abs(value - known) for known in TRAINING_ELEVATIONS)
    differences = [(value - known) % 36 for known in TRAINING_AZIMUTHS]
    return 10 * min(min(difference, 36 - difference) for difference in differences)


def check_labels(labels: Mapping[str, NDArray[np.integer]], instances: tuple[int, ...], *, where: str) -> None:
    """Check that the labels are a complete grid of viewpoints of these instances, each combination once.

    This detects any single wrong label: it duplicates a combination or adds one that is not in the grid.
    """
    allowed = {name: instances if name == "instance" else tuple(values) for name, values in LABELS.items()}
    for name, values in allowed.items():
        wrong = ~np.isin(labels[name], values)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{where}: {name} must be one of {', '.join(map(str, values))}; example {row} has "
                f"{int(labels[name][row])}. Is this the right file, and complete?"
            )
    count = len(labels["category"])
    grid = int(np.prod([len(np.unique(labels[name])) for name in LABELS]))
    different = len(np.unique(np.stack([labels[name] for name in LABELS]), axis=1).T)
    if not count == grid == different:
        raise ValueError(
            f"{where}: every combination of category, instance, elevation, azimuth and lighting must occur once; "
            f"{count} examples have {different} different of {grid} combinations. Is this the right file, and complete?"
        )


def write_views(path: Path, views: Views) -> None:
    """Write a compact file."""
    arrays = {name: getattr(views, name).numpy().astype(np.uint8) for name in ("images", *LABELS)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_views(path: Path, instances: tuple[int, ...]) -> Views:
    """Read a compact file, which must hold a complete grid of viewpoints of these instances."""
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
            images = read_array(archive, "images", (2, SIZE, SIZE))
            labels = {name: read_array(archive, name, ()) for name in LABELS}
        except ARCHIVE_ERRORS as error:
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"{path} is not a whole file of views ({reason}); was it cut short? Copy it again, or remove it."
            ) from None
    for name, values in labels.items():
        if len(values) != len(images):
            raise ValueError(f"{path}: there are {len(images)} images and {len(values)} values of {name}.")
    check_labels(labels, instances, where=str(path))
    return Views(torch.as_tensor(images), *(torch.as_tensor(values.astype(np.int64)) for values in labels.values()))


def read_array(archive: zipfile.ZipFile, name: str, inner_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an array of bytes of shape ``(N, *inner_shape)``; its header must agree with the archive's directory."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} must be stored or deflated, not by method {member.compress_type}")
    with archive.open(member) as file:
        start = file.read(10)
        if start[:8] != b"\x93NUMPY\x01\x00":
            raise ValueError(f"{name} is not a NumPy array of version 1")
        header = file.read(int.from_bytes(start[8:], "little"))
        fields = HEADER.fullmatch(header)
        if fields is None or fields[1] != b"|u1" or fields[2] != b"False":
            raise ValueError(f"{name} must be an array of 8-bit numbers in C order")
        shape = tuple(int(part) for part in fields[3].split(b",") if part.strip())
        if not shape or shape[1:] != inner_shape or not 1 <= shape[0] <= MAX_EXAMPLES:
            raise ValueError(
                f"{name} must have shape {('N', *inner_shape)} with N from 1 to {MAX_EXAMPLES}; got {shape}"
            )
        size = math.prod(shape)
        # Deflate expands by a factor of about a thousand at most; a header that claims more is wrong.
        if len(start + header) + size != member.file_size or size > 1100 * (member.compress_size + 100):
            raise ValueError(f"{name} claims {size} bytes and cannot hold them")
        content = file.read()
    if len(content) != size:
        raise ValueError(f"{name} holds {len(content)} of {size} bytes")
    return np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)
