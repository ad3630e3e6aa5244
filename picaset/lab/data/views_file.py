"""Views in one compact file: a NumPy archive of 8-bit arrays, ``images``, ``category``, ``instance``, ``elevation``,
``azimuth`` and ``lighting``.

The archive's checksums find every damaged byte. What a file claims is compared with what it can hold before anything of
that size is allocated, and nothing of it is ever unpickled.
"""

import math
import re
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from picaset.files import replacing
from picaset.lab.data.views import LABELS, SIZE, Views, check_labels

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
