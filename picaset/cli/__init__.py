"""The command line: one file per command."""

import contextlib
import difflib
import inspect
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, Union, cast, runtime_checkable

import tyro

from picaset.cli.classify import Classify
from picaset.cli.cluster import Cluster
from picaset.cli.evaluate import Evaluate
from picaset.cli.experiments import Experiments
from picaset.cli.export import Export
from picaset.cli.faces import Faces
from picaset.cli.look import Look
from picaset.cli.odd import Odd
from picaset.cli.pool import Pool
from picaset.cli.report import Report
from picaset.cli.reproduce import Reproduce
from picaset.cli.studio import Studio
from picaset.cli.tour import Tour
from picaset.cli.train import Train
from picaset.cli.train_clusterer import TrainClusterer
from picaset.cli.version import Version
from picaset.extras import MissingExtraError
from picaset.terminal import printable, printable_warnings, say


@runtime_checkable
class Command(Protocol):
    """A command with its arguments."""

    def run(self) -> int: ...


COMMANDS: dict[str, type[Command]] = {
    "tour": Tour,
    "studio": Studio,
    "cluster": Cluster,
    "train-clusterer": TrainClusterer,
    "classify": Classify,
    "odd": Odd,
    "faces": Faces,
    "experiments": Experiments,
    "train": Train,
    "evaluate": Evaluate,
    "look": Look,
    "reproduce": Reproduce,
    "report": Report,
    "pool": Pool,
    "export": Export,
    "version": Version,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an expected error is printed as one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without a character shows its code
            stream.reconfigure(errors="backslashreplace")
    try:
        return run(arguments)
    except Exception:  # a defect of picaset: the traceback is wanted, and may quote text of a file
        say(traceback.format_exc().rstrip(), error=True)
        return 1


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an error that is not expected, a defect of picaset, is raised."""
    try:
        with printable_warnings():
            return parse(arguments).run()
    except BrokenPipeError:  # the reader of the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MissingExtraError, OSError, ValueError) as error:
        say(f"picaset: {format_error(error)}", error=True)
        return 1
    except KeyboardInterrupt as interrupt:
        say(f"picaset: {str(interrupt) or 'stopped'}", error=True)
        return 130


def format_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def parse(arguments: Sequence[str] | None) -> Command:
    """Return the command that the arguments name; a mistake in them is printed, and ends the program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = next(iter(arguments), "")
    if first not in COMMANDS and (similar := difflib.get_close_matches(first, COMMANDS, n=1)):
        say(f"picaset: there is no command {first!r}; did you mean {similar[0]!r}?", error=True)
        raise SystemExit(2)  # as for every mistake in the arguments
    escaped = [printable(argument) for argument in arguments]
    if escaped != list(arguments):  # tyro prints by itself: the name of a file where an option is expected
        with (
            contextlib.suppress(SystemExit),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return parse_with_tyro(arguments)
    return parse_with_tyro(escaped)


def parse_with_tyro(arguments: Sequence[str]) -> Command:
    # tyro shows only the summary of a docstring; the description adds its examples.
    if arguments and (command := COMMANDS.get(arguments[0])):
        description = inspect.getdoc(command)
        return tyro.cli(command, prog=f"picaset {arguments[0]}", description=description, args=arguments[1:])
    choices = tuple(
        Annotated[Any, tyro.conf.subcommand(name, constructor=command, description=summary(command))]
        for name, command in COMMANDS.items()
    )
    description = "Networks that take sets as input. 'picaset COMMAND --help' has options and examples."
    union = cast(Any, Union[choices])  # noqa: UP007 - built at run time
    return tyro.cli(union, prog="picaset", description=description, args=arguments)


def summary(command: type[Command]) -> str:
    """Return the first paragraph of a command's docstring."""
    return (inspect.getdoc(command) or "").partition("\n\n")[0]
