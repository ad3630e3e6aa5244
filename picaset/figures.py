"""Colours and line plots of all figures, text from files in them, and their output as SVG and PNG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picaset.extras import require
from picaset.files import atomic_write, create_folder

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Palette of Okabe and Ito, which colour-blind readers can distinguish."""
GRID = "#eeeeee"
REFERENCE = "#555555"
"""Colour of lines that are no results: the oracle, guessing."""
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
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


def draw_curves(axis: Any, curves: Mapping[str, Mapping[Any, float]], **options: Any) -> None:
    """Draw one labelled line for each entry, from x to y; dashed lines reuse the colours."""
    for number, (label, curve) in enumerate(curves.items()):
        style = "-" if number < len(COLOURS) else "--"
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(list(curve), list(curve.values()), style, color=colour, label=label, **options)
    axis.grid(color=GRID)


def draw_learning_curves(
    curves: Mapping[str, Mapping[int, float]],
    folder: Path,
    name: str,
    *,
    label: str,
    scale: str = "linear",
    guessing: float | None = None,
) -> list[Path]:
    """Draw one labelled line for each entry, from the training step to the value of a metric."""
    figure = new_figure(8, 4.4)
    axis = figure.subplots()
    draw_curves(axis, curves)
    if guessing is not None:
        axis.axhline(guessing, linestyle=":", color=REFERENCE, label="random guessing")
    axis.set(xlabel="step", ylabel=label, yscale=scale)
    axis.grid(color=GRID, which="both")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return write_figure(figure, folder, name)


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
