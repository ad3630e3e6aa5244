"""Colours of all figures, text from files in them, and their output as SVG and PNG."""

from pathlib import Path
from typing import Any

from picaset.extras import require
from picaset.files import atomic_write, create_folder

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Palette of Okabe and Ito, which colour-blind readers can distinguish."""
MAX_STEPS, MAX_HEADS, MAX_TEMPLATES = 5, 8, 10
"""Rows and columns of a figure of attention; a network from a file may have any number of them."""


def spread(count: int, most: int) -> list[int]:
    """Return the indices that a figure shows: all of them, or ``most`` from the first to the last.

    Example:
        >>> spread(3, 5), spread(1000, 5)
        ([0, 1, 2], [0, 249, 499, 749, 999])
    """
    if count <= most:
        return list(range(count))
    return [index * (count - 1) // (most - 1) for index in range(most)]


def new_figure(width: int | float, height: int | float) -> Any:
    """Create an empty Matplotlib figure; width and height are in inches."""
    require("matplotlib", extra="experiments", purpose="drawing figures")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def literal(text: str, length: int = 60) -> str:
    """Return text that matplotlib shows as it is: no formulas, one line, not too long."""
    text = "".join(character if character.isprintable() else " " for character in text)
    return (text if len(text) <= length else text[:length] + "...").replace("$", r"\$")


def write_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write ``name.svg`` and ``name.png`` into a folder and return their paths."""
    create_folder(folder)
    svg, png = (folder / f"{name}.{suffix}" for suffix in ("svg", "png"))
    for path in (png, svg):
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=150)
        figure.set_layout_engine("none")  # both files get the layout of the first
    return [svg, png]
