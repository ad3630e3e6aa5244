"""Run a target on mutated files, and count what becomes of them."""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from picaset.cli import main
from picaset.terminal import CONTROL
from tests.fuzz.mutations import Files, mutate, write_files

MAX_SECONDS = 5.0
"""Processor time of an input; other programs may slow down the machine."""
MAX_WAIT = 60.0
"""Wall-clock time after which an input that does not compute is ended."""
MAX_MEMORY = 4 * 2**30
"""Address space that a worker may add to what it has when it starts."""
OUTCOMES = ("accepted", "refused", "traceback", "hang", "wrote outside", "control character")
FAILURES = OUTCOMES[2:]


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Args:
        name: Row of the table of outcomes.
        files: Returns valid files, or several variants of them.
        use: Reads and uses the files in a folder; the generator may choose among several ways.
    """

    name: str
    files: Callable[[], list[Files]]
    use: Callable[[Path, Random], object]


@dataclass(frozen=True)
class Failure:
    """An input that was neither accepted nor clearly refused."""

    outcome: str
    details: str


class HangError(BaseException):
    """The time limit of an input; not an ``Exception``, so that nothing between catches it."""


class RefusedError(ValueError):
    """A command ended with an exit code."""


def command(*arguments: object) -> None:
    """Run a command of picaset in this process."""
    code = main([str(argument) for argument in arguments])
    if code:
        raise RefusedError(f"exit code {code}")


writes = list[str]()
"""Paths that were opened for writing, renamed or removed since the list was cleared."""
watching = False


def watch_writes(event: str, arguments: tuple[Any, ...]) -> None:
    if not watching:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            writes.append(os.fsdecode(path))
    elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"):
        writes.append(os.fsdecode(arguments[0]))
        if event == "os.rename":
            writes.append(os.fsdecode(arguments[1]))


sys.addaudithook(watch_writes)


def run_input(target: Target, variants: list[Files], number: int, seed: int) -> str | Failure:
    """Give one mutated input to a target and return what becomes of it."""
    global watching
    random = Random(f"{target.name} {seed} {number}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("PICASET_FUZZ")) as place:
        folder, outside = Path(place) / "given", Path(place) / "outside"
        folder.mkdir()
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_text("{}")
        write_files(folder, mutate(random.choice(variants), random), random, outside)
        before = snapshot(outside)
        output, started = io.StringIO(), time.process_time()
        result: str | Failure = "accepted"
        writes.clear()
        # Twice: the first may end up in code that a C library has called, where it is printed and forgotten.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 0.5)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                watching = True
                target.use(folder, random)
        except (ValueError, OSError):
            result = "refused"
        except HangError:
            result = Failure("hang", "".join(traceback.format_exc().splitlines(keepends=True)[-12:]))
        except BaseException:
            result = Failure("traceback", traceback.format_exc())
        finally:
            watching = False
            with contextlib.suppress(HangError):  # one that comes in the last moment
                signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(result, str):
            if time.process_time() - started > MAX_SECONDS:
                return Failure("hang", f"{time.process_time() - started:.1f} s")
            if strange := [path for path in writes if is_outside(path, folder)] or before != snapshot(outside):
                return Failure("wrote outside", str(strange))
            if found := CONTROL.search(output.getvalue()):
                return Failure("control character", repr(output.getvalue()[max(found.start() - 80, 0) :][:160]))
        return result


def is_outside(path: str, folder: Path) -> bool:
    """Whether a path that was written to is neither in the folder nor in the cache of generated data nor a device."""
    real = os.path.realpath(path)
    caches = [os.environ[name] for name in ("PICASET_CACHE", "MPLCONFIGDIR", "TMPDIR") if name in os.environ]
    allowed = (os.path.realpath(folder), *map(os.path.realpath, caches), "/dev/")
    return os.path.isabs(path) and not real.startswith(allowed) and not real.endswith(".pyc")


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def raise_hang(number: int, frame: object) -> None:
    raise HangError


def run_inputs(target: Target, numbers: range, seed: int) -> Iterator[tuple[int, str | Failure]]:
    """Run inputs in this process, whose main thread this must be."""
    variants = target.files()
    previous = signal.signal(signal.SIGPROF, raise_hang)
    try:
        for number in numbers:
            yield number, run_input(target, variants, number, seed)
    finally:
        signal.signal(signal.SIGPROF, previous)


def work(target: Target, numbers: range, seed: int) -> None:
    """Run inputs as a worker: a line of JSON for each."""
    answers, variants = sys.stdout, target.files()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for number in range(30):  # the valid files: everything is imported before time and memory are limited
            with tempfile.TemporaryDirectory(dir=os.environ["PICASET_FUZZ"]) as place, contextlib.suppress(ValueError):
                for name, content in variants[number % len(variants)].items():
                    (Path(place) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(place) / name).write_bytes(content)
                target.use(Path(place), Random(number))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_MEMORY, size + MAX_MEMORY))
    for number, result in run_inputs(Target(target.name, lambda: variants, target.use), numbers, seed):
        outcome, details = (result, "") if isinstance(result, str) else (result.outcome, result.details)
        print(json.dumps([number, outcome, details]), file=answers, flush=True)


def run_in_workers(
    target: Target, num_inputs: int, *, seed: int, first: int = 0
) -> Iterator[tuple[int, str | Failure]]:
    """Run inputs in a worker process, which is started again after an input that it does not survive."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)  # syncing is free in memory
    places = {name: f"{folder}/{name}" for name in ("PICASET_CACHE", "PICASET_FUZZ", "MPLCONFIGDIR", "TMPDIR", "HOME")}
    for place in places.values():
        Path(place).mkdir()
    environment = os.environ | places | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    number, last = first, first + num_inputs
    while number < last:
        arguments = ["--worker", "--target", target.name, "--first", number, "--inputs", last - number, "--seed", seed]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder,
        )  # fmt: skip
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        for line in lines_in_time(process, 600.0, MAX_WAIT):
            number, outcome, details = json.loads(line)
            yield number, outcome if not details else Failure(outcome, details)
            number += 1
        code = process.wait()
        if number < last:
            said = (process.stderr.read() or "")[-2000:]
            yield number, Failure("hang" if code == -signal.SIGKILL else "traceback", f"worker ended by {code}: {said}")
            number += 1
    shutil.rmtree(folder, ignore_errors=True)


def lines_in_time(process: Any, first_seconds: float, seconds: float) -> Iterator[str]:
    """Yield the lines of a process; kill it if the next one does not come in time."""
    import selectors

    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    patience = first_seconds
    while selector.select(patience):
        line = process.stdout.readline()
        if not line:
            return
        yield line
        patience = seconds
    process.kill()


def count(results: Iterator[tuple[int, str | Failure]], report: Callable[[int, Failure], None]) -> Counter[str]:
    """Count the outcomes; an interruption ends the counting, and what was counted is returned."""
    outcomes = Counter[str]()
    with contextlib.suppress(KeyboardInterrupt):
        for number, result in results:
            outcomes[result if isinstance(result, str) else result.outcome] += 1
            if isinstance(result, Failure):
                report(number, result)
    return outcomes
