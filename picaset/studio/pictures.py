"""Pictures for the page, as PNG."""

import io
from typing import Any

import numpy as np
from fastapi.responses import Response
from numpy.typing import NDArray

PICTURE = "picture"
"""As work for a lane, beside the names of networks."""


class Picture(Response):
    """A PNG; routes name it as their answer so that the API's description says so."""

    media_type = "image/png"


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """Of (height, width) in grey, or (height, width, 3) in colours.

    Example:
        >>> png_of(np.zeros((2, 3, 3), dtype=np.uint8))[:4]
        b'\\x89PNG'
    """
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(written, format="PNG")
    return written.getvalue()


IS_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}, "description": "The picture."}
}
"""What the description of a route that answers with a picture says."""
