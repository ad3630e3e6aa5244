"""The rooms together: one page, one API, the files that the page needs, and errors that a person can read.

Files are read once, when the studio starts. What a browser asks for is looked up among them; no part of an address
becomes a path.
"""

import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from picaset.studio.guard import Guard
from picaset.studio.rooms import Room
from picaset.studio.schemas import Refused, in_words

STATIC = Path(str(resources.files("picaset"))) / "studio" / "static"
KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}


def create_application(rooms: Sequence[Room], *, hosts: Iterable[str]) -> FastAPI:
    """The whole studio, for a server that browsers know by these hosts."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        for room in rooms:
            threading.Thread(target=room.warm, daemon=True, name=f"warm-{room.name}").start()
        yield
        for room in rooms:
            room.close()

    application = FastAPI(
        title="picaset studio",
        description="What the page asks. Everything is computed on this machine.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would ask another machine for its script
        redoc_url=None,
        lifespan=lifespan,
    )
    for room in rooms:
        application.include_router(room.router, prefix=f"/api/{room.name}", tags=[room.title])
    application.add_exception_handler(Refused, on_refused)
    application.add_exception_handler(RequestValidationError, on_invalid)
    application.add_exception_handler(HTTPException, on_http_error)
    application.get("/{path:path}", include_in_schema=False)(server_of(page_and_files(rooms)))
    application.add_middleware(Guard, hosts=[host.lower() for host in hosts])
    return application


async def on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"message": error.message}, error.status)


async def on_invalid(_: Request, error: Exception) -> Response:
    """Says what is wrong without repeating what was sent, which may be anything, NaN included."""
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    not_json = bool(problems) and problems[0]["type"] == "json_invalid"
    return JSONResponse({"message": in_words(problems)}, 400 if not_json else 422)


async def on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"message": str(error.detail)}, error.status_code, headers=error.headers)


def page_and_files(rooms: Sequence[Room]) -> dict[str, tuple[bytes, str]]:
    """What each address holds, and of which kind."""
    found = {
        f"static/{path.relative_to(STATIC).as_posix()}": (path.read_bytes(), KINDS[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.is_file() and path.suffix in KINDS
    }
    for room in rooms:
        for path in sorted(room.folder.iterdir()):
            if path.suffix in (".js", ".css"):
                found[f"rooms/{room.name}/{path.name}"] = (path.read_bytes(), KINDS[path.suffix])
    found[""] = (page(rooms).encode(), "text/html; charset=utf-8")
    return found


def page(rooms: Sequence[Room]) -> str:
    """The frame, with a door and a section for each room."""
    doors = "\n".join(f'<a href="#{room.name}" data-door="{room.name}">{escape(room.title)}</a>' for room in rooms)
    styles = "\n".join(f'<link rel="stylesheet" href="/rooms/{room.name}/room.css">' for room in rooms)
    sections = "\n".join(
        f'<section id="room-{room.name}" class="room" data-room="{room.name}" aria-labelledby="title-{room.name}" '
        f"hidden>\n{(room.folder / 'section.html').read_text()}</section>"
        for room in rooms
    )
    frame = (STATIC / "frame.html").read_text()
    for mark, text in (("doors", doors), ("styles", styles), ("sections", sections)):
        frame = frame.replace(f"<!-- {mark} -->", text)
    return frame


def server_of(files: dict[str, tuple[bytes, str]]) -> Callable[..., Any]:
    async def serve(path: str) -> Response:
        if path not in files:
            return JSONResponse({"message": "There is no such page."}, 404)
        content, kind = files[path]
        return Response(content, media_type=kind)

    return serve
