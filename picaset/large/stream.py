"""``picaset.stream``: one set of any size, in memory that does not depend on it."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from picaset.large import rules
from picaset.large.file_sources import open_source
from picaset.large.large_set import LargeSet
from picaset.large.reading import Reading, Spill, watching
from picaset.large.rules import Transform, expect_width, read_large
from picaset.large.sinks import Sink, send
from picaset.large.sources import CALLER, InMemory, Source

TAUGHT = (rules,)
"""The files that say how each operator reads a large set."""


def stream(
    operator: nn.Module,
    source: Any,
    chunk: int | None = None,
    *,
    mask: Bool[Tensor, "*B N"] | None = None,
    transform: Transform | None = None,
    sink: Sink | None = None,
    spill: Spill = "auto",
    folder: Path | None = None,
    progress: bool = False,
) -> Any:
    """What an operator or network returns for a set that is read in chunks: the same to rounding, gradients too.

    The set is read once for every step of attention, so the source must give the same elements every time. Parameters
    get their gradients, and so do elements if they are a tensor; a backward pass reads the set as often as
    the forward pass did. Second derivatives are refused.

    Args:
        operator: Any pool but Janossy and sort pooling, InducedSelfAttention, GeneralizedPicaso, Canonicalize around
            one of them, ``nn.Sequential`` of them, DeepSets, SetTransformer, Picaso, MixtureNetwork.
        source: A tensor (N, D) or (B, N, D), an array (N, D), the path of a .npy, .safetensors or .parquet, or a
            function that returns an iterator of chunks (n, D), a new one at every call.
        chunk: Elements in memory at a time; what fits into the caches, unless said otherwise.
        mask: With a tensor: True where an element is present.
        transform: Applied to every chunk on the way, (B, n, D) to (B, n, E), every element by itself.
        sink: Where encoded elements go: the path of a .npy, an array to fill, or a function called with each chunk.
            Without one they are returned, if the source is in memory.
        spill: Whether encoded elements are kept in a temporary file between passes: ``"always"``, ``"never"``, or
            ``"auto"``, where that is cheaper than making them again.
        folder: Where the temporary file goes.
        progress: Show a bar for each pass.

    Example:
        >>> from picaset import PicasoPool
        >>> pool, elements = PicasoPool(16, num_templates=4, num_heads=2), torch.randn(1000, 16)
        >>> pooled = stream(pool, elements.numpy(), chunk=300)
        >>> torch.allclose(pooled, pool(elements[None]), atol=1e-5)
        True
    """
    with watching(progress) as watcher:
        opened = open_source(source, mask)
        reading = Reading.by(operator, **numbers_of(opened), chunk=chunk, caller=CALLER, spill=spill, folder=folder,
                             watcher=watcher)  # fmt: skip
        return read(operator, opened, reading, transform=transform, sink=sink)


def read(
    operator: nn.Module,
    source: Source,
    reading: Reading,
    *,
    transform: Transform | None = None,
    sink: Sink | None = None,
) -> Any:
    """Read a source by an operator, and put elements that come back where they are wanted."""
    check_repeatable(operator)
    large = expect_width(LargeSet(source, reading), operator, transform)
    result = read_large(operator, large)
    if isinstance(result, LargeSet):
        return elements_of(result, sink)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], LargeSet):  # pyright: ignore
        return result[0], elements_of(result[1], sink)  # pyright: ignore[reportUnknownVariableType]
    if sink is not None:
        raise ValueError(f"{CALLER}: {type(operator).__name__} returns no elements for a sink; call without one.")
    return result  # pyright: ignore[reportUnknownVariableType]


def elements_of(large: LargeSet, sink: Sink | None) -> Any:
    if sink is not None:
        send(large, sink)
        return sink
    if isinstance(large.from_the_start().source, InMemory):
        return large.collect()
    raise ValueError(
        f"{CALLER}: the result has as many elements as {large.source.name}; say where they go by sink=..., the path of "
        "a .npy, an array to fill, or a function."
    )


def numbers_of(source: Source) -> dict[str, Any]:
    """The numbers of a source in memory, for operators without weights; what is read is taken as float32."""
    if isinstance(source, InMemory):
        return dict(dtype=source.elements.dtype, device=source.elements.device)
    return dict(dtype=torch.float32, device=torch.device("cpu"))


def check_repeatable(operator: nn.Module) -> None:
    """Whether a chunk that is made again comes out the same."""
    for module in operator.modules():
        random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0  # pyright: ignore[reportPrivateUsage]
        if module.training and (random or isinstance(module, nn.modules.batchnorm._BatchNorm)):  # pyright: ignore
            raise ValueError(
                f"{CALLER}: {type(module).__name__} in training makes something else of a chunk every time, and chunks "
                "are made several times. Call .eval() on it."
            )
