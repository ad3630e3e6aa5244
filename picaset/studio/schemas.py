"""Request and response types that the rooms share, and the errors that the API returns.

Names that the page offers (data sources, networks, methods) are members of a :class:`DescribedName`; the page receives
each as an :class:`Option`. A request that cannot be answered raises :class:`RequestError`; the page shows its message.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from picaset.pretrained import read_description


class RequestError(Exception):
    """An error that is returned to the browser as an HTTP status and a JSON message.

    Args:
        status: HTTP status: 4xx, or 503 while the studio is closing.
        message: What was expected, what came, what to do.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Message(BaseModel):
    """Body of every error response."""

    message: str


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Message, "description": description}
    for status, description in {
        400: "The body is not valid JSON.",
        403: "The request comes from another host or page.",
        404: "The requested item does not exist.",
        409: "A newer request of the same page replaced this one.",
        411: "The header Content-Length is missing.",
        413: "The body is too large.",
        422: "The values cannot be used; the message gives the reason.",
        429: "Too many requests are waiting.",
        503: "The studio is closing.",
    }.items()
}
"""Error responses of every route, for the OpenAPI description."""


def describe_validation_error(problems: Sequence[Any]) -> str:
    """Format the first problem of a pydantic validation error as a sentence.

    Example:
        >>> describe_validation_error([{"loc": ("body", "points", 3, 0), "msg": "Input should be a finite number"}])
        'points, entry 4, entry 1: input should be a finite number.'
    """
    if not problems:
        return "The request does not have the expected format."
    _, *location = problems[0]["loc"]  # the first part says whether it is in the body, the query or the path
    words = [f"entry {part + 1}" if isinstance(part, int) else str(part) for part in location]
    message = str(problems[0]["msg"])
    reason = message[:1].lower() + message[1:].removesuffix(".")
    return f"{', '.join(words)}: {reason}." if words else f"{reason[:1].upper()}{reason[1:]}."


class PageRequest(BaseModel):
    """A request that a newer one of the same page replaces."""

    model_config = ConfigDict(extra="forbid")

    page: Annotated[str, Field(max_length=40, pattern=r"^[A-Za-z0-9-]*$")] = ""
    """Identifier of the page that sends the request; requests without one are never replaced."""
    gesture: Annotated[int, Field(ge=0, le=2**53)] = 0
    """Number of the user's action on that page; a higher number is newer."""


Milliseconds = float
"""Computing time of a prediction, without waiting and transfer."""
MAX_SEED = 1_000_000
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""Random seed; equal seeds give equal data."""
Position = Annotated[list[float], Field(min_length=2, max_length=2)]
"""Two coordinates in a response."""


class DescribedName(StrEnum):
    """A name in the API, with the title and the description that the page shows for it.

    Members are declared as ``NAME = value, title, description``; a network adds its subfolder of the weights folder.

    Example:
        >>> class Fruit(DescribedName):
        ...     APPLE = "apple", "Apple", "Grows on trees."
        >>> Fruit("apple").heading
        'Apple'
    """

    heading: str
    """The title; ``str.title`` is a method."""
    about: str
    folder: str

    def __new__(cls, value: str, heading: str, about: str, folder: str = "") -> "DescribedName":
        member = str.__new__(cls, value)
        member._value_ = value
        member.heading = heading
        member.about = about
        member.folder = folder
        return member


AnyOption = TypeVar("AnyOption", bound="Option")


class Option(BaseModel):
    """A data source, network or method that can be chosen on the page."""

    name: str
    title: str
    about: str

    @classmethod
    def of(cls: type[AnyOption], name: DescribedName, **fields: Any) -> AnyOption:
        """Build the option of a name; ``fields`` are those that a subclass adds."""
        return cls(name=name.value, title=name.heading, about=name.about, **fields)


def missing_data(title: str) -> RequestError:
    """Return the error for a dataset that is not on this machine."""
    return RequestError(404, f"{title} was not found; set PICASET_DATA to the folder that contains it.")


def read_config(folder: Path) -> dict[str, Any]:
    """Read the constructor arguments of a saved network without its weights.

    Returns an empty dictionary if the file cannot be read: the room opens all the same, and a prediction by this
    network reports the error.
    """
    try:
        return read_description(folder / "config.json")["config"]
    except (ValueError, OSError):
        return {}
