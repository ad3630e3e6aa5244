"""Run a target on mutated files, and count what becomes of them."""

import contextlib
import functools
import io
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import IO, Any
from unittest import mock

from picaset import cli
from picaset.terminal import CONTROL
from tests.fuzz.mutations import Files, mutate, write_files

MAX_WAIT = 60.0
"""Wall-clock time after which an input that does not compute, nor waits for a processor, is ended."""
MAX_MEMORY = 4 * 2**30
"""Address space that a worker may add to what it has when it starts."""
PLACES = ("PICASET_CACHE", "PICASET_FUZZ", "MPLCONFIGDIR", "TMPDIR", "HOME")
"""Variables of the environment that name a folder to write to; every worker has its own."""
OUTCOMES = ("accepted", "refused", "traceback", "hang", "wrote outside", "control character")
FAILURES = OUTCOMES[2:]


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Args:
        name: Row of the table of outcomes.
        files: Returns valid files, or several variants of them.
        use: Reads and uses the files in a folder; the generator may choose among several ways.
        warm: Called once in every worker before time is limited.
        max_seconds: Processor time of an input; other programs may slow down the machine.
    """

    name: str
    files: Callable[[], list[Files]]
    use: Callable[[Path, Random], object]
    warm: Callable[[], object] = lambda: None
    max_seconds: float = 5.0


@dataclass(frozen=True)
class Result:
    """Outcome of an input: one of ``OUTCOMES``, the way it was used, and the details of a failure."""

    outcome: str
    way: str = ""
    details: str = ""

    @property
    def is_failure(self) -> bool:
        return self.outcome in FAILURES


class HangError(BaseException):
    """The time limit of an input; not an ``Exception``, so that nothing between catches it."""


class RefusedError(ValueError):
    """A command ended with an exit code."""


def command(*arguments: object) -> None:
    """Run a command of picaset in this process; a defect of it is raised, where the program would print a traceback."""
    with mock.patch.object(cli, "parse", parse_once):
        code = cli.run(tuple(map(str, arguments)))
    if code:
        raise RefusedError(f"exit code {code}")


parse_once = functools.cache(cli.parse)
"""To parse the arguments takes longer than many a command; a command with its arguments does not change."""

way = ""
"""The command, or another way to use the files, of the present input."""


def choose_way(name: str) -> None:
    """Count the present input as one of a command, or of another way to use the files."""
    global way
    way = name


writes = list[Path]()
"""Real paths that were opened for writing, renamed or removed since the list was cleared."""
watching = False
FOLLOWING = ("os.truncate", "os.chmod")
CHANGING = {"os.remove": (-1,), "os.rmdir": (-1,), "os.mkdir": (-1,), "os.rename": (-2, -1)}
CHANGING |= {"os.symlink": (None, -1), "os.link": (None, -1)}
"""Events that change an entry of a folder: for each path, where its folder is in the arguments; None is no change."""


def watch_writes(event: str, arguments: tuple[Any, ...]) -> None:
    if not watching:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            writes.append(Path(os.path.realpath(os.fsdecode(path))))
    elif event in FOLLOWING and not isinstance(arguments[0], int):
        writes.append(Path(os.path.realpath(os.fsdecode(arguments[0]))))
    elif event in CHANGING:
        for path, index in zip(arguments, CHANGING[event], strict=False):
            if index is not None:
                writes.append(entry_of(os.fsdecode(path), arguments[index]))


def entry_of(path: str, folder: int) -> Path:
    """Return the real path of an entry of a folder: of a link itself, not of what it leads to."""
    place = Path(f"/proc/self/fd/{folder}" if folder >= 0 else ".", path)
    return Path(os.path.realpath(place.parent)) / place.name


sys.addaudithook(watch_writes)


def run_input(target: Target, variants: list[Files], number: int, seed: int) -> Result:
    """Give one mutated input to a target and return what becomes of it."""
    global watching
    choose_way("")
    random = Random(f"{target.name} {seed} {number}")
    with input_folder() as place:
        folder, outside = place / "given", place / "outside"
        folder.mkdir()
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_text("{}")
        write_files(folder, mutate(random.choice(variants), random), random, outside)
        before = snapshot(outside)
        output, started = io.StringIO(), time.process_time()
        outcome, details = "accepted", ""
        writes.clear()
        # Twice: the first may end up in code that a C library has called, where it is printed and forgotten.
        signal.setitimer(signal.ITIMER_PROF, target.max_seconds, 0.5)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                watching = True
                target.use(folder, random)
        except (ValueError, OSError):
            outcome = "refused"
        except HangError:
            outcome, details = "hang", "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
        except BaseException:
            outcome, details = "traceback", traceback.format_exc()
        finally:
            watching = False
            with contextlib.suppress(HangError):  # one that comes in the last moment
                signal.setitimer(signal.ITIMER_PROF, 0)
        if outcome not in FAILURES:
            text = output.getvalue()
            if time.process_time() - started > target.max_seconds:
                outcome, details = "hang", f"{time.process_time() - started:.1f} s"
            elif strange := [path for path in writes if is_outside(path, folder)] or before != snapshot(outside):
                outcome, details = "wrote outside", str(strange)
            elif found := CONTROL.search(text):
                outcome, details = "control character", repr(text[max(found.start() - 80, 0) :][:160])
            elif TRACEBACK in text:
                outcome, details = "traceback", text
        return Result(outcome, way, details)


@contextlib.contextmanager
def input_folder() -> Generator[Path]:
    """Make an empty folder for an input, in a worker always the same one, so that commands have the same arguments."""
    if "PICASET_FUZZ" not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
        return
    place = Path(os.environ["PICASET_FUZZ"]) / "input"
    shutil.rmtree(place, ignore_errors=True)  # an earlier worker may have been killed
    place.mkdir()
    yield place


TRACEBACK = "Traceback (most recent call last)"
"""In the output: an error that was printed and forgotten, as in a thread or a destructor."""


def is_outside(path: Path, folder: Path) -> bool:
    """Whether a real path that was written to is neither in the folder nor in a cache nor a device."""
    caches = [os.environ[name] for name in ("PICASET_CACHE", "MPLCONFIGDIR", "TMPDIR") if name in os.environ]
    allowed = [*(Path(place).resolve() for place in (folder, *caches)), *DEVICES]
    return "__pycache__" not in path.parts and not any(path.is_relative_to(place) for place in allowed)


DEVICES = ("/dev/null", "/dev/tty")


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def raise_hang(number: int, frame: object) -> None:
    raise HangError


def run_inputs(target: Target, numbers: range, seed: int) -> Iterator[tuple[int, Result]]:
    """Run inputs in this process, whose main thread this must be, with a limit on its memory."""
    variants = target.files()
    previous = signal.signal(signal.SIGPROF, raise_hang)
    try:
        with limited_memory():
            for number in numbers:
                yield number, run_input(target, variants, number, seed)
    finally:
        signal.signal(signal.SIGPROF, previous)


@contextlib.contextmanager
def limited_memory() -> Generator[None]:
    """Limit the address space of this process to ``MAX_MEMORY`` beyond what it has."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def work(target: Target, numbers: range, seed: int, answers: IO[str]) -> None:
    """Run inputs as a worker: a line of JSON for each."""
    variants = target.files()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        target.warm()
        for number in range(30):  # the valid files: everything is imported before time and memory are limited
            with tempfile.TemporaryDirectory(dir=os.environ["PICASET_FUZZ"]) as place, contextlib.suppress(ValueError):
                for name, content in variants[number % len(variants)].items():
                    (Path(place) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(place) / name).write_bytes(content)
                target.use(Path(place), Random(number))
    for number, result in run_inputs(replace(target, files=lambda: variants), numbers, seed):
        print(json.dumps([number, asdict(result)]), file=answers, flush=True)


def start_worker(target: Target, numbers: range, seed: int, folder: Path) -> tuple[int, IO[str]]:
    """Fork a worker with folders of its own; return its process and its answers."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        return pid, os.fdopen(read)
    code = 1
    try:
        os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.chdir(folder)
        os.environ |= {name: str(folder / name) for name in PLACES}
        tempfile.tempdir = None  # as in TMPDIR
        work(target, numbers, seed, os.fdopen(write, "w"))
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def run_in_workers(target: Target, num_inputs: int, *, seed: int, first: int = 0) -> Iterator[tuple[int, Result]]:
    """Run inputs in a worker process, which is started again after an input that it does not survive."""
    number, last = first, first + num_inputs
    # In memory, where syncing is free.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        for name in (*PLACES, "results/runs"):  # no committed records, which would be read each time
            (Path(place) / name).mkdir(parents=True)
        while number < last:
            pid, answers = start_worker(target, range(number, last), seed, Path(place))
            with answers:
                for line in lines_in_time(pid, answers, target.max_seconds):
                    number, result = json.loads(line)
                    yield number, Result(**result)
                    number += 1
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if number < last:
                said = (Path(place) / "errors").read_text(errors="replace")[-2000:]
                outcome = "hang" if code == -signal.SIGKILL else "traceback"
                yield number, Result(outcome, details=f"worker ended by {code}: {said}")
                number += 1


def lines_in_time(pid: int, answers: IO[str], max_seconds: float) -> Iterator[str]:
    """Yield the lines of a process; kill it if the next one does not come in time, or takes too much of a processor."""
    selector = selectors.DefaultSelector()
    selector.register(answers, selectors.EVENT_READ)
    patience, computed = 600.0, 0.0
    while True:
        if selector.select(patience):
            line = answers.readline()
            if not line:
                return
            yield line
            patience, computed = MAX_WAIT, processor_seconds(pid)[0]
        else:
            total, is_running = processor_seconds(pid)
            if not is_running or total - computed > 2 * max_seconds:
                os.kill(pid, signal.SIGKILL)
                return


def processor_seconds(pid: int) -> tuple[float, bool]:
    """Return the processor time of a process, and whether it runs, is paused, or waits for a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] in "RT"
