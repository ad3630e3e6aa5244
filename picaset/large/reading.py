"""How a large set is read: in chunks of which size, as which numbers, together with whom, and who watches.

What is seen of a long read: a bar for each pass, or nothing.

Reading in a thread of its own, so that the disk and the arithmetic overlap.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.large.ranks import Alone, Reduction
from picaset.operators.picaso import PicasoPool


@runtime_checkable
class Watcher(Protocol):
    """What a pass tells."""

    def begin(self, kind: str, count: int | None) -> None: ...

    def advance(self, count: int) -> None: ...


class Silent:
    """Nothing."""

    def begin(self, kind: str, count: int | None) -> None: ...

    def advance(self, count: int) -> None: ...


class Bars:
    """A bar for each pass."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.passes = 0
        self.seen = 0
        self.task: TaskID | None = None

    def begin(self, kind: str, count: int | None) -> None:
        if self.task is not None:
            self.progress.update(self.task, total=self.seen)
        self.passes, self.seen = self.passes + 1, 0
        self.task = self.progress.add_task(f"pass {self.passes}, {kind}", total=count, seen="0")

    def advance(self, count: int) -> None:
        assert self.task is not None
        self.seen += count
        self.progress.update(self.task, advance=count, seen=f"{self.seen:,}")


@contextmanager
def watching(wanted: bool) -> Generator[Watcher]:
    """Bars on the terminal's error stream, if they are wanted."""
    if not wanted:
        yield Silent()
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[seen]} elements"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bars(progress)


Item = TypeVar("Item")


def read_ahead(items: Callable[[], Iterator[Item]], *, depth: int) -> Generator[Item]:
    """The items of an iterator, up to ``depth`` of them made ahead; an error there is raised here.

    The thread ends when the last item was taken, or when nobody wants more.

    Example:
        >>> list(read_ahead(lambda: iter("abc"), depth=2))
        ['a', 'b', 'c']
    """
    if depth == 0:
        yield from items()
        return
    ready: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[bool, Item | BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            iterator = items()
            for item in iterator:
                if not put((True, item)):
                    break
            if isinstance(iterator, Generator):
                iterator.close()
            put((False, None))
        except BaseException as error:  # it belongs to whoever is reading
            put((False, error))

    thread = threading.Thread(target=work, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            more, entry = ready.get()
            if more:
                yield entry  # pyright: ignore[reportReturnType]
            elif isinstance(entry, BaseException):
                raise entry
            else:
                return
    finally:
        stopped.set()
        thread.join()


Spill = Literal["auto", "always", "never"]

VALUES = 2**21
"""Numbers of a chunk, at the width of the widest layer: few chunks, each a few megabytes."""
LARGER = 4
"""How many times as many where nothing is made of the elements on the way, and chunks are only a matter of overhead."""


@dataclass(frozen=True)
class Reading:
    """How the chunks of a set come to an operator."""

    size: int
    dtype: torch.dtype
    device: torch.device
    reduction: Reduction = field(default_factory=Alone)
    spill: Spill = "auto"
    folder: Path | None = None
    watcher: Watcher = field(default_factory=Silent)
    autocast: torch.dtype | None = None

    @classmethod
    def by(
        cls,
        module: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        chunk: int | None,
        caller: str,
        spill: Spill,
        folder: Path | None = None,
        watcher: Watcher | None = None,
        reduction: Reduction | None = None,
    ) -> "Reading":
        """As a module reads: on its device, as its numbers, in chunks that its widest layer keeps in cache."""
        weight = next(module.parameters(), None)
        if chunk is not None:
            check_positive(caller=caller, chunk=chunk)
        check_choice(spill, ("auto", "always", "never"), caller=caller, name="spill")
        device = device if weight is None else weight.device
        autocast = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
        return cls(
            size=chunk or max(VALUES * (LARGER if isinstance(module, PicasoPool) else 1) // widest(module), 1024),
            dtype=dtype if weight is None else weight.dtype,
            device=device,
            reduction=reduction or Alone(),
            spill=spill,
            folder=folder,
            watcher=watcher or Silent(),
            autocast=autocast,
        )

    @property
    def sums(self) -> torch.dtype:
        """The numbers that sums are given as: half precision is summed as float32."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def prepared(self, elements: Tensor) -> Tensor:
        """Elements of a source as the operator wants them."""
        return elements.to(self.device, self.dtype)

    def precision(self) -> AbstractContextManager[object]:
        """Autocast as it was when the reading began, in a backward pass too."""
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)


def widest(module: nn.Module) -> int:
    """The largest dimension of any of a module's parameters."""
    return max((size for parameter in module.parameters() for size in parameter.shape), default=16)
