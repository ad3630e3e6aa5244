"""Where the elements go that an operator returns for every element that came in.

path of a .npy     written beside it, and given the name when it is whole
array, memmap      filled
function           called with each chunk (B, n, E) in order
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.files import replacing
from picaset.large.large_set import LargeSet
from picaset.large.sources import CALLER

Sink = str | os.PathLike[str] | NDArray[np.generic] | Callable[[Tensor], object]


@torch.no_grad()
def send(large: LargeSet, sink: Sink) -> None:
    """Write every element of a large set to a sink, in one pass."""
    if isinstance(sink, np.ndarray):
        fill(large, cast(NDArray[Any], sink))
    elif isinstance(sink, str | os.PathLike):
        write_npy(large, Path(cast("str | os.PathLike[str]", sink)))
    elif callable(sink):
        for chunk in present_chunks(large):
            sink(chunk.clone())
    else:
        raise TypeError(
            f"{CALLER}: a sink is the path of a .npy, an array to fill, or a function; got {type(sink).__name__}."
        )


def present_chunks(large: LargeSet) -> Any:
    for chunk in large.chunks("writing"):
        if large.source.count != 0:
            yield chunk.elements


def fill(large: LargeSet, array: NDArray[Any]) -> None:
    start = 0
    for elements in present_chunks(large):
        rows = elements if array.ndim == 3 else elements[0]
        stop = start + elements.shape[1]
        space = array[:, start:stop] if array.ndim == 3 else array[start:stop]
        if (array.ndim == 2 and len(elements) > 1) or space.shape != tuple(rows.shape):
            raise ValueError(
                f"{CALLER}: the sink has shape {array.shape}, which has no room for elements {start} to {stop - 1} of "
                f"{len(elements)} set{'s' * (len(elements) > 1)} with {elements.shape[2]} features."
            )
        space[...] = rows.cpu().numpy()
        start = stop
    if start != array.shape[-2]:
        raise ValueError(f"{CALLER}: the sink has room for {array.shape[-2]} elements; the set has {start}.")


def write_npy(large: LargeSet, path: Path) -> None:
    """The header is written twice: the number of elements is known at the end."""
    if large.sets != 1:
        raise ValueError(
            f"{CALLER}: a .npy takes the elements of one set; there are {large.sets}. Give an array to fill."
        )
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        count, width, dtype = 0, 0, np.dtype(np.float32)
        for elements in present_chunks(large):
            rows = elements[0].cpu().contiguous().numpy()
            if count == 0:
                width, dtype = rows.shape[1], rows.dtype
                write_header(file, (0, width), dtype)
            count += len(rows)
            file.write(memoryview(rows).cast("B"))
        file.seek(0)
        write_header(file, (count, width), dtype)


def write_header(file: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """A header of one length, whatever the number of elements: NumPy pads it so that it can grow in place."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, described)
