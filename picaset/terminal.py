"""The only way to the terminal: text from files is escaped here, once, for all commands.

printable             text without control characters, which could move the cursor, recolour or retitle a terminal
say                   print a line
Terminal              a rich console: no markup in strings, and control characters only where rich itself makes them
printable_warnings    the same for warnings of libraries, which Python prints by itself
"""

import re
import sys
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters other than the line feed, marks that reverse the direction of text, and lone surrogates."""


def printable(text: str) -> str:
    r"""Return a text with control characters written as escapes.

    Example:
        >>> printable("name\x1b[2J")
        'name\\x1b[2J'
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: object = "", *, error: bool = False) -> None:
    """Print a line to the output, or to the error stream."""
    print(printable(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


@contextmanager
def printable_warnings() -> Generator[None]:
    """Write control characters in warnings as escapes: a library may quote text from a file in one."""
    original = warnings.formatwarning

    def format_printable(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return printable(original(message, category, filename, lineno, line))

    warnings.formatwarning = format_printable
    try:
        yield
    finally:
        warnings.formatwarning = original


class Terminal(Console):
    """A rich console for text of any origin; pass a ``rich.text.Text`` to style a part of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before the width of a column is measured

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
