"""Encoded elements kept in a temporary file, where reading them again is cheaper than making them again.

The file has no name in its folder: when its set is forgotten, or the process dies in whatever way, nothing is left.
Backward passes make the elements again, since they need the graph.
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from picaset.large.read_ahead import read_ahead
from picaset.large.sources import AHEAD, WORTH_A_THREAD, Chunk, Source, memory_of

if TYPE_CHECKING:
    from picaset.large.large_set import LargeSet


class Spilled(Source):
    """A large set that is made in its first pass, and from then on read from disk, if that pays.

    It pays when making a chunk again for each of the later passes takes longer than writing it once and reading it for
    each. Both are measured on the second chunk, the first being slowed by what is cold.
    """

    def __init__(self, large: "LargeSet", *, reads: int) -> None:
        self.large = large
        self.name = f"what was kept of {large.source.name}"
        self.sets = large.sets
        self.reads = reads
        self.file: SpillFile | None = None
        self.decided = large.reading.spill == "always"
        self.whole = False

    @property
    def count(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.large.source.count

    def chunks(self, size: int) -> Iterator[Chunk]:
        if self.file is not None and self.whole:
            return self.file.chunks()
        return self.made_and_written() if self.reads > 1 else self.large.chunks("encoding")

    def made_and_written(self) -> Iterator[Chunk]:
        file: SpillFile | None = SpillFile(self.large.reading.folder)
        began = time.perf_counter()
        for index, chunk in enumerate(self.large.chunks("encoding")):
            making = time.perf_counter() - began
            if file is not None:
                began = time.perf_counter()
                file.write(chunk)
                writing = time.perf_counter() - began
                if index == 1 and not self.decided and not self.pays(making, writing, chunk):
                    file, self.reads = file.close(), 0
            yield chunk
            began = time.perf_counter()
        self.file, self.whole = file, file is not None

    def pays(self, making: float, writing: float, chunk: Chunk) -> bool:
        """Reading is taken to cost as much as writing, which errs on the side of making again."""
        folder = self.large.reading.folder or Path(tempfile.gettempdir())
        count = self.large.source.count
        needed = 0 if count is None else chunk.elements.nbytes * count // max(chunk.elements.shape[1], 1)
        if shutil.disk_usage(folder).free < needed:
            return False
        return (self.reads - 1) * making > self.reads * writing


class SpillFile:
    """Chunks written one after the other to a file without a name, and read back in that order."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self.file.close)
        self.written = list[tuple[int, tuple[int, ...], torch.dtype, torch.device, Tensor | None]]()
        self.bytes = 0

    def write(self, chunk: Chunk) -> None:
        elements = chunk.elements.detach()
        held = memory_of(elements.cpu().contiguous())
        try:
            done = 0
            while done < len(held):
                done += os.pwrite(self.file.fileno(), held[done:], self.bytes + done)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno,
                f"picaset.stream: encoded elements could not be kept in {self.folder} after {self.bytes / 2**20:.0f} MB"
                f" ({error.strerror}). What was written is gone. Give another folder=..., or spill='never', which makes"
                " them again in every pass.",
            ) from None
        self.written.append((chunk.start, tuple(elements.shape), elements.dtype, elements.device, chunk.mask))
        self.bytes += len(held)

    def chunks(self) -> Iterator[Chunk]:
        elements = self.written[0][1][1] if self.written else 0
        return read_ahead(self.read, depth=AHEAD if elements >= WORTH_A_THREAD else 0)

    def read(self) -> Iterator[Chunk]:
        largest = max((torch.Size(shape).numel() * dtype.itemsize for _, shape, dtype, _, _ in self.written), default=0)
        buffers = [torch.empty(largest, dtype=torch.uint8) for _ in range(AHEAD + 3)]
        offset = 0
        for index, (start, shape, dtype, device, mask) in enumerate(self.written):
            size = torch.Size(shape).numel() * dtype.itemsize
            buffer = buffers[index % len(buffers)][:size]
            view, done = memory_of(buffer), 0
            while done < size:
                done += os.preadv(self.file.fileno(), [view[done:]], offset + done)
            offset += size
            yield Chunk(start, buffer.view(dtype).view(shape).to(device), mask)

    def close(self) -> None:
        """Nothing is left of it."""
        self.file.close()
