"""What the page gets of runs, typed."""

from pydantic import BaseModel


class RunSummary(BaseModel):
    """A run in the list."""

    name: str
    """Of its folder."""
    kind: str
    finished: bool
    step: int
    steps: int
    score: float | None
    """The last one."""
    version: str
    """Changes when the run does."""
    problem: str | None = None
    """Why it cannot be read."""


class RunList(BaseModel):
    """Everything in the folder."""

    folder: str
    runs: list[RunSummary]
    version: str
    """Changes when any run does."""


class Setting(BaseModel):
    """One entry of a run's configuration."""

    name: str
    value: str


class RunDetail(BaseModel):
    """A run with its curves and its configuration."""

    name: str
    version: str
    curves: dict[str, list[float | None]]
    """Each measure, as long as ``curves["step"]``."""
    settings: list[Setting]


class TableCell(BaseModel):
    """What was found, and what was published."""

    found: str
    published: str
    best: bool


class TableOfPaper(BaseModel):
    """A table with ours beside theirs."""

    title: str
    columns: list[str]
    rows: list[list[TableCell]]
    notes: list[str]


class Tables(BaseModel):
    """All that the finished runs allow."""

    about: str
    tables: list[TableOfPaper]
