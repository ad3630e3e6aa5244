"""One self-contained HTML page: tables and figures, no request to anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from picaset.extras import require
from picaset.files import made_folder, replacing
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Table


@dataclass(frozen=True)
class Drawing:
    """A figure, as the text of its SVG, and what it shows."""

    path: Path
    svg: Any
    caption: str


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    anchor: str
    title: str
    text: str
    tables: Sequence[Table]
    figures: Sequence[Drawing] = field(default_factory=tuple)


def drawing(svg: Path, caption: str) -> Drawing:
    """A figure to be put into the page itself."""
    require("jinja2", extra="experiments", purpose="the report page")
    from markupsafe import Markup

    text = svg.read_text()
    return Drawing(svg, Markup(text[text.index("<svg") :]), caption)


def write_page(path: Path, *, lead: str, sections: Sequence[Section], records: Sequence[Record]) -> None:
    """Write the page, whole or not at all."""
    jinja2: Any = require("jinja2", extra="experiments", purpose="the report page")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        Path(__file__).with_name("page.html.jinja").read_text()
    )
    runs = [
        dict(
            name=record.experiment.name,
            profile=record.experiment.profile,
            seed=record.experiment.training.seed,
            steps=record.result["steps"],
            minutes=f"{record.result['seconds'] / 60:.1f}",
            commit=record.environment["commit"],
            hardware=record.environment["hardware"],
        )
        for record in sorted(records, key=lambda record: record.key)
    ]
    text = template.render(title="picaset: the paper, reproduced", lead=lead, sections=sections, runs=runs)
    made_folder(path.parent)
    with replacing(path) as unfinished:
        unfinished.write_text(text)
