"""What a person is told when something cannot be done."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel


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
