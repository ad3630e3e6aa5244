"""What rooms ask and tell alike: seeds, where pictures come from, who looks at them, and what is not there.

What a person is told when something cannot be done.

What every question of a moving hand has, so that a newer one replaces an older one.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from picaset.networks.pretrained import read_description


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure
    """A request that is answered by a message; every room may raise it.

    Args:
        status: Of the answer; 4xx, or 503 when the studio closes.
        message: What was expected, what came, what to do.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Message(BaseModel):
    """The body of every answer that is not a result."""

    message: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Message, "description": description}
    for status, description in {
        400: "Not JSON.",
        403: "From another host or page.",
        404: "There is no such thing.",
        409: "A newer gesture replaced this one.",
        411: "It does not say its length.",
        413: "Too large.",
        422: "It cannot be done with these values; the message says why.",
        429: "Too many requests wait.",
        503: "The studio is closing.",
    }.items()
}
"""What every route may answer beside its result."""


def in_words(problems: Sequence[Any]) -> str:
    """The first thing that is wrong with a request, as a sentence.

    Example:
        >>> in_words([{"loc": ("body", "points", 3, 0), "msg": "Input should be a finite number"}])
        'points, entry 4, entry 1: input should be a finite number.'
    """
    if not problems:
        return "The request is not what the studio expects."
    _, *place = problems[0]["loc"]  # the first says whether it is in the body, the query or the path
    words = [f"entry {part + 1}" if isinstance(part, int) else str(part) for part in place]
    said = str(problems[0]["msg"])
    reason = said[:1].lower() + said[1:].removesuffix(".")
    return f"{', '.join(words)}: {reason}." if words else f"{reason[:1].upper()}{reason[1:]}."


class Gesture(BaseModel):
    """Which page asks, and after which of its changes."""

    model_config = ConfigDict(extra="forbid")

    page: Annotated[str, Field(max_length=40, pattern=r"^[A-Za-z0-9-]*$")] = ""
    """Which page asks; a newer gesture of the same page replaces an older one."""
    gesture: Annotated[int, Field(ge=0, le=2**53)] = 0


MOST_SEED = 1_000_000
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
"""What is drawn is the same for the same seed."""


class Source(BaseModel):
    """Where pictures come from."""

    name: str
    title: str
    about: str


class Model(BaseModel):
    """A network, as it is told on the page."""

    name: str
    title: str
    about: str


def check_is_there(name: str, networks: Collection[str]) -> None:
    if name not in networks:
        raise Refused(404, f"The network {name} is not there.")


def without_data(title: str) -> Refused:
    """For whoever asks for real data that was not found."""
    return Refused(404, f"{title} is not there; PICASET_DATA must be the folder that holds it.")


def config_of(folder: Path) -> dict[str, Any]:
    """What a network was made with, without reading its weights.

    Nothing if that cannot be read: the room opens all the same, and whoever asks this network is told why.
    """
    try:
        return read_description(folder / "config.json")["config"]
    except (ValueError, OSError):
        return {}
