"""Images for the page: PNG responses, and attention maps as brightness values."""

import io
from typing import Any

import numpy as np
from fastapi.responses import Response
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

PICTURE = "picture"
"""Kind of job that renders an image; the other kinds are names of networks."""


class PngResponse(Response):
    """A PNG image."""

    media_type = "image/png"


PNG_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}, "description": "The image."}
}
"""Response of a route that returns an image, for the OpenAPI description."""


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a grey image (height, width) or a colour image (height, width, 3).

    Example:
        >>> encode_png(np.zeros((2, 3, 3), dtype=np.uint8))[:4]
        b'\\x89PNG'
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG")
    return buffer.getvalue()


def attention_brightness(attention: Float[Tensor, "K N"]) -> list[list[int]]:
    """Scale the attention of each template to 0..255; the largest weight of a template is 255."""
    relative = attention / attention.amax(dim=1, keepdim=True).clamp(min=1e-12)
    brightness: Any = (255 * relative).round().int().numpy()
    return brightness.tolist()
