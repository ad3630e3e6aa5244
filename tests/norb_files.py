"""Small files in the original format of smallNORB, written byte by byte."""

import gzip
import struct
from itertools import product
from pathlib import Path

import numpy as np

STEMS = {"training": "smallnorb-5x46789x9x18x6x2x96x96-training", "testing": "smallnorb-5x01235x9x18x6x2x96x96-testing"}


def bytes_of(array: np.ndarray) -> bytes:
    """A file as LeCun's page describes it: magic number, dimensions, at least three sizes, then the numbers."""
    magic = {np.dtype(np.uint8): 0x1E3D4C55, np.dtype(np.int32): 0x1E3D4C54}[array.dtype]
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    return struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes) + array.astype(array.dtype, "C").tobytes()


def small_half(half: str, *, azimuths=(0, 6), elevations=(0, 5), lightings=(2,), categories=(0,)) -> dict[str, bytes]:
    """The three files of one instance on a small grid."""
    rows = list(product(categories, elevations, azimuths, lightings))
    instance = {"training": 7, "testing": 3}[half]
    images = np.random.default_rng(0).integers(0, 256, (len(rows), 2, 96, 96), dtype=np.uint8)
    return {
        "dat": bytes_of(images),
        "cat": bytes_of(np.array([row[0] for row in rows], dtype=np.int32)),
        "info": bytes_of(np.array([[instance, *row[1:]] for row in rows], dtype=np.int32)),
    }


def write_half(folder: Path, half: str, files: dict[str, bytes], *, compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, content in files.items():
        name = f"{STEMS[half]}-{kind}.mat" + (".gz" if compress else "")
        (folder / name).write_bytes(gzip.compress(content, 1, mtime=0) if compress else content)
