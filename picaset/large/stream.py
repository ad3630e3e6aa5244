"""``picaset.stream``: apply an operator or network to one set of any size, in constant memory.

The set comes from a source (sources.py), becomes a LargeSet (large_set.py), and is read by the
streaming rule of the operator (rules.py). Elements that an encoder returns go to a sink:

    path of a .npy      written under a temporary name, and renamed when complete
    array or memmap     filled
    function            called with each chunk (B, n, E) in order
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from picaset.files import atomic_write
from picaset.large.large_set import LargeSet, Reading, Spill
from picaset.large.partitions import Partitioned
from picaset.large.rules import apply_streamed
from picaset.large.sources import CALLER, InMemory, Source, open_source
from picaset.terminal import watch_passes

Transform = Callable[[Tensor], Tensor]
Sink = str | os.PathLike[str] | NDArray[np.generic] | Callable[[Tensor], object]


def stream(
    operator: nn.Module,
    source: Any,
    chunk: int | None = None,
    *,
    mask: Bool[Tensor, "*B N"] | None = None,
    weights: Shaped[Tensor, "*B N"] | None = None,
    transform: Transform | None = None,
    sink: Sink | None = None,
    spill: Spill = "auto",
    folder: Path | None = None,
    progress: bool = False,
) -> Any:
    """Apply an operator or network to a set that is read in chunks; result and gradients are those of the whole set.

    They are equal up to rounding. The set is read once for every step of attention, so the source must return the same
    elements in every pass. Parameters get gradients, and so do elements that are in a tensor; a backward pass reads the
    set as often as the forward pass. Second derivatives are not supported.

    Args:
        operator: Any pool but Janossy and sort pooling, InducedSelfAttention, GeneralizedPicaso, Canonicalize around
            one of them, ``nn.Sequential`` of them, DeepSets, SetTransformer, Picaso, MixtureNetwork, or a class with a
            rule of its own (see ``picaset.large.rules``).
        source: A tensor (N, D) or (B, N, D), an array (N, D), the path of a .npy, .safetensors, .parquet or .lance, a
            list of paths, a dataset of Hugging Face, Ray or Dask, an iterable of chunks (n, D) such as a DataLoader, or
            a function that returns an iterator of chunks, a new one at every call.
        chunk: Elements in memory at a time; by default as many as fit into the caches.
        mask: With a tensor: True where an element is present.
        weights: With a tensor: an element of weight w counts as w copies of it. They get no gradient.
        transform: Applied to every chunk, (B, n, D) to (B, n, E), each element by itself.
        sink: Destination of encoded elements: the path of a .npy, an array to fill, or a function called with each
            chunk. Without a sink they are returned, if the source is in memory, or as a dataset of Ray or Dask.
        spill: Whether encoded elements are cached in a temporary file between passes: ``"always"``, ``"never"``, or
            ``"auto"``, if that is cheaper than computing them again.
        folder: Folder of the temporary file.
        progress: Show a bar for each pass.

    Example:
        >>> from picaset import PicasoPool
        >>> pool, elements = PicasoPool(16, num_templates=4, num_heads=2), torch.randn(1000, 16)
        >>> pooled = stream(pool, elements.numpy(), chunk=300)
        >>> torch.allclose(pooled, pool(elements[None]), atol=1e-5)
        True
    """
    with watch_passes(progress) as watcher:
        opened = open_source(source, mask, weights)
        reading = Reading.for_operator(
            operator, opened, chunk=chunk, caller=CALLER, spill=spill, folder=folder, watcher=watcher
        )
        return stream_source(operator, opened, reading, transform=transform, sink=sink)


def stream_source(
    operator: nn.Module,
    source: Source,
    reading: Reading,
    *,
    transform: Transform | None = None,
    sink: Sink | None = None,
) -> Any:
    """Apply an operator to an open source, and deliver the elements that it returns."""
    check_deterministic(operator)
    check_takes_weights(operator, source)
    large = prepare_elements(LargeSet(source, reading), operator, transform)
    result = apply_streamed(operator, large)
    if isinstance(result, LargeSet):
        return deliver(result, sink)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], LargeSet):  # pyright: ignore
        return result[0], deliver(result[1], sink)  # pyright: ignore[reportUnknownVariableType]
    if sink is not None:
        raise ValueError(f"{CALLER}: {type(operator).__name__} returns no elements; remove sink=... from the call.")
    return result  # pyright: ignore[reportUnknownVariableType]


def check_deterministic(operator: nn.Module) -> None:
    """Reject modules whose results differ when a chunk is recomputed."""
    for module in operator.modules():
        random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0  # pyright: ignore[reportPrivateUsage]
        if module.training and (random or isinstance(module, nn.modules.batchnorm._BatchNorm)):  # pyright: ignore
            raise ValueError(
                f"{CALLER}: {type(module).__name__} in training mode is not deterministic, and every chunk is computed "
                "several times. Call .eval() on it."
            )


def check_takes_weights(operator: nn.Module, source: Source) -> None:
    """Refuse weights for an operator that does not take them; the modules of a sequence are checked one by one."""
    if not isinstance(source, InMemory) or source.mask is None or source.mask.dtype is torch.bool:
        return
    for module in operator if isinstance(operator, nn.Sequential) else (operator,):
        if not getattr(module, "takes_weights", False):
            raise TypeError(f"{CALLER}: {type(module).__name__} does not take weights; stream the set without them.")


def prepare_elements(large: LargeSet, operator: nn.Module, transform: Transform | None) -> LargeSet:
    """Return the large set after a transform, with the number of features checked in every chunk."""
    name, width, source_name = type(operator).__name__, input_width(operator), large.source.name

    def prepare(elements: Tensor) -> Tensor:
        prepared = elements if transform is None else transform(elements)
        if prepared.shape[:-1] != elements.shape[:-1]:
            raise ValueError(
                f"{CALLER}: transform must map (B, n, D) to (B, n, E), each element by itself; it returned "
                f"{tuple(prepared.shape)} for {tuple(elements.shape)}."
            )
        if width is not None and prepared.shape[-1] != width:
            raise ValueError(
                f"{name}: elements must have {width} features; those of {source_name} have {prepared.shape[-1]}"
                f"{'' if transform is None else ' after the transform'}."
            )
        return prepared

    modules = (transform,) if isinstance(transform, nn.Module) else ()
    return large.map(prepare, modules=modules, costs=transform is not None)


def input_width(operator: nn.Module) -> int | None:
    """Return the number of features that an operator, or the first module of a sequence, expects."""
    if isinstance(operator, nn.Sequential) and len(operator):
        return input_width(operator[0])
    return getattr(operator, "dim_in", None)


# Sinks


def deliver(large: LargeSet, sink: Sink | None) -> Any:
    """Write the elements of a large set to a sink and return it; without one, return the elements in memory."""
    if isinstance(large.source, Partitioned):
        if sink is not None:
            raise ValueError(
                f"{CALLER}: the encoded elements of {large.source.name} stay in their partitions; call without a sink "
                "and write the dataset that is returned."
            )
        return large.encode_parts()
    if sink is None:
        if isinstance(large.uncached().source, InMemory):
            return large.collect()
        raise ValueError(
            f"{CALLER}: the result has as many elements as {large.source.name}; pass sink=..., the path of a .npy, an "
            "array to fill, or a function."
        )
    with torch.no_grad():
        if isinstance(sink, np.ndarray):
            fill_array(large, cast(NDArray[Any], sink))
        elif isinstance(sink, str | os.PathLike):
            write_npy(large, Path(cast("str | os.PathLike[str]", sink)))
        elif callable(sink):
            for elements in element_chunks(large):
                sink(elements.clone())
        else:
            raise TypeError(
                f"{CALLER}: a sink must be the path of a .npy, an array to fill, or a function; got "
                f"{type(sink).__name__}."
            )
    return cast(Any, sink)


def element_chunks(large: LargeSet) -> Iterator[Tensor]:
    for chunk in large.chunks("writing"):
        if large.source.count != 0:
            yield chunk.elements


def fill_array(large: LargeSet, array: NDArray[Any]) -> None:
    start = 0
    for elements in element_chunks(large):
        rows = elements if array.ndim == 3 else elements[0]
        stop = start + elements.shape[1]
        part = array[:, start:stop] if array.ndim == 3 else array[start:stop]
        if (array.ndim == 2 and len(elements) > 1) or part.shape != tuple(rows.shape):
            raise ValueError(
                f"{CALLER}: the sink has shape {array.shape}, which has no room for elements {start} to {stop - 1} of "
                f"{len(elements)} set{'s' * (len(elements) > 1)} with {elements.shape[2]} features."
            )
        part[...] = to_numpy(rows)
        start = stop
    if start != array.shape[-2]:
        raise ValueError(f"{CALLER}: the sink has room for {array.shape[-2]} elements; the set has {start}.")


def write_npy(large: LargeSet, path: Path) -> None:
    """Write the elements of one set to a .npy; the header is written again once their number is known."""
    if large.sets != 1:
        raise ValueError(
            f"{CALLER}: a .npy takes the elements of one set; there are {large.sets}. Pass an array to fill."
        )
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        count, width, dtype = 0, 0, np.dtype(np.float32)
        for elements in element_chunks(large):
            rows: Any = to_numpy(elements[0].contiguous())
            if count == 0:
                width, dtype = rows.shape[1], rows.dtype
                write_header(file, (0, width), dtype)
            count += len(rows)
            file.write(memoryview(rows).cast("B"))
        file.seek(0)
        write_header(file, (count, width), dtype)


def to_numpy(elements: Tensor) -> NDArray[Any]:
    if elements.dtype is torch.bfloat16:
        raise TypeError(
            f"{CALLER}: the result is bfloat16, which NumPy does not have; pass a function as sink, or operator "
            "and elements in float32."
        )
    return elements.cpu().numpy()


def write_header(file: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Write a header whose length does not depend on the number of elements: NumPy pads it so that it can grow."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)
