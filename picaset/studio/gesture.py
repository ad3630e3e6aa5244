"""What every question of a moving hand has, so that a newer one replaces an older one."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Gesture(BaseModel):
    """Which page asks, and after which of its changes."""

    model_config = ConfigDict(extra="forbid")

    page: Annotated[str, Field(max_length=40, pattern=r"^[A-Za-z0-9-]*$")] = ""
    """Which page asks; a newer gesture of the same page replaces an older one."""
    gesture: Annotated[int, Field(ge=0, le=2**53)] = 0
