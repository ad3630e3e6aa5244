"""Docstrings for the site: shapes keep their columns, equations become pictures, names become links.

A griffe extension, which mkdocs.yml names. Equations are drawn by matplotlib as outlines, so that the page needs no
script and no font for them.
"""

import re
import textwrap
from html import escape

import griffe
from matplotlib.textpath import TextPath

import picaset

BLOCK_MATH = re.compile(r"^( *)\.\. math::(.*(?:\n+\1 +.*)*)", re.MULTILINE)
INLINE_MATH = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`([^`]+)`")
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
SHAPES = re.compile(r"^( *)Shapes:\n((?:\1 +.*(?:\n|$))+)", re.MULTILINE)
UNITS_PER_EM = 16
UNKNOWN_TO_MATPLOTLIB = {r"\lVert": r"\|", r"\rVert": r"\|", r"\tfrac12": r"\frac{1}{2}", r"\tfrac": r"\frac"}


class Docstrings(griffe.Extension):
    """Translate what docstrings borrow from reStructuredText to Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring: str) -> str:
    """Return a docstring whose equations, references and shapes are Markdown."""
    docstring = BLOCK_MATH.sub(block_of_equations, docstring)
    docstring = INLINE_MATH.sub(lambda match: draw_equation(match[1]), docstring)
    docstring = ROLE.sub(lambda match: reference(match[1]), docstring)
    docstring = docstring.replace("Example::\n", "**Example:**\n")
    docstring = EXAMPLE.sub(r"\1Examples:", docstring)  # the only heading that griffe reads as doctests
    return SHAPES.sub(code_of_shapes, docstring)


def block_of_equations(match: re.Match[str]) -> str:
    """Return the equations of a directive, one picture each: a narrow screen breaks the line between them."""
    equations = re.split(r",\s*\\q?quad", " ".join(match[2].split()))
    pictures = " ".join(draw_equation(equation.strip()) for equation in equations)
    return f'{match[1]}<p class="equations">{pictures}</p>'


def draw_equation(latex: str) -> str:
    """Return an equation as inline SVG in the colour of the text, on its baseline."""
    supported = latex
    for theirs, ours in UNKNOWN_TO_MATPLOTLIB.items():
        supported = supported.replace(theirs, ours)
    path = TextPath((0, 0), f"${supported}$", size=UNITS_PER_EM)
    left, bottom, width, height = path.get_extents().bounds
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C", path.CLOSEPOLY: "Z"}
    outline = "".join(
        "Z"
        if code == path.CLOSEPOLY
        else letters[code] + " ".join(f"{number:.2f}" for number in points * sign_of_y(points))
        for points, code in path.iter_segments(curves=True, simplify=False)
    )
    size = f"width:{width / UNITS_PER_EM:.2f}em;height:{height / UNITS_PER_EM:.2f}em"
    return (
        f'<svg class="equation" role="img" aria-label="{escape(latex)}" style="{size};'
        f'vertical-align:{bottom / UNITS_PER_EM:.2f}em" '
        f'viewBox="{left:.2f} {-bottom - height:.2f} {width:.2f} {height:.2f}"><path d="{outline}"/></svg>'
    )


def sign_of_y(points):
    """Return the factors that turn a y-axis up into one down, as SVG has it."""
    return [1, -1] * (len(points) // 2)


def reference(name: str) -> str:
    """Return a link to a public name, and the plain name of anything else."""
    short = name.removeprefix("picaset.")
    return f"[`{short}`][picaset.{short}]" if short in picaset.__all__ else f"`{name}`"


def code_of_shapes(match: re.Match[str]) -> str:
    """Return a section of shapes as preformatted text."""
    shapes = textwrap.dedent(match[2]).strip().replace("``", "")  # all of it is code
    lines = textwrap.indent(f"```text\n{shapes}\n```\n", match[1])
    return f"{match[1]}**Shapes:**\n\n{lines}"
