"""The FastAPI application: one page with all rooms, their API, static files, security checks and error messages.

Files are read when the studio starts, and a requested address is looked up among them; no part of an address becomes a
path. Pages of other sites must not be able to use a server on this machine, neither through a host name that resolves
to it (so ``Host`` is checked) nor by cross-origin requests (so ``Origin`` and ``Sec-Fetch-Site`` are).
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from picaset.studio.background import start_thread
from picaset.studio.rooms import Room
from picaset.studio.schemas import RequestError, describe_validation_error

STATIC = Path(str(resources.files("picaset"))) / "studio" / "static"
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
MAX_BODY_BYTES = 1_000_000
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def create_application(rooms: Sequence[Room], *, hosts: Iterable[str]) -> FastAPI:
    """Build the application.

    Args:
        rooms: Rooms of the page, in the order of their links.
        hosts: Values of the header ``Host`` that are accepted.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        for room in rooms:
            start_thread(room.warm, name=f"warm-{room.name}")
        yield
        for room in rooms:
            room.close()

    application = FastAPI(
        title="picaset studio",
        description="The API behind the page. Everything is computed on this machine.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the documentation page loads its script from another machine
        redoc_url=None,
        lifespan=lifespan,
    )
    for room in rooms:
        application.include_router(room.router, prefix=f"/api/{room.name}", tags=[room.title])
    application.add_exception_handler(RequestError, on_request_error)
    application.add_exception_handler(RequestValidationError, on_validation_error)
    application.add_exception_handler(HTTPException, on_http_error)
    application.get("/{path:path}", include_in_schema=False)(file_route(collect_files(rooms)))
    application.add_middleware(SecurityMiddleware, hosts=[host.lower() for host in hosts])
    return application


async def on_request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"message": error.message}, error.status)


async def on_validation_error(_: Request, error: Exception) -> Response:
    """Report what is wrong without repeating the input, which may hold values that JSON has not, such as NaN."""
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    not_json = bool(problems) and problems[0]["type"] == "json_invalid"
    return JSONResponse({"message": describe_validation_error(problems)}, 400 if not_json else 422)


async def on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"message": str(error.detail)}, error.status_code, headers=error.headers)


def collect_files(rooms: Sequence[Room]) -> dict[str, tuple[bytes, str]]:
    """Return content and media type of every address: the page, shared files, scripts and styles of the rooms."""
    files = {
        f"static/{path.relative_to(STATIC).as_posix()}": (path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    for room in rooms:
        for path in sorted(room.folder.iterdir()):
            if path.suffix in (".js", ".css"):
                files[f"rooms/{room.name}/{path.name}"] = (path.read_bytes(), MEDIA_TYPES[path.suffix])
    files[""] = (page_html(rooms).encode(), "text/html; charset=utf-8")
    return files


def page_html(rooms: Sequence[Room]) -> str:
    """Return the page: the frame with a link and a section for each room."""
    links = "\n".join(f'<a href="#{room.name}" data-link="{room.name}">{escape(room.title)}</a>' for room in rooms)
    styles = "\n".join(f'<link rel="stylesheet" href="/rooms/{room.name}/room.css">' for room in rooms)
    sections = "\n".join(
        f'<section id="room-{room.name}" class="room" data-room="{room.name}" aria-labelledby="title-{room.name}" '
        f"hidden>\n{(room.folder / 'section.html').read_text()}</section>"
        for room in rooms
    )
    frame = (STATIC / "frame.html").read_text()
    for mark, text in (("links", links), ("styles", styles), ("sections", sections)):
        frame = frame.replace(f"<!-- {mark} -->", text)
    return frame


def file_route(files: dict[str, tuple[bytes, str]]) -> Callable[..., Any]:
    async def serve_file(path: str) -> Response:
        if path not in files:
            return JSONResponse({"message": "This page does not exist."}, 404)
        content, media_type = files[path]
        return Response(content, media_type=media_type)

    return serve_file


class SecurityMiddleware:
    """Refuse foreign hosts, foreign origins and large bodies; add the security headers to every response.

    Args:
        app: The application that handles accepted requests.
        hosts: Names of this server in a browser, with the port: ``127.0.0.1:8000``.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self.check_host(headers) or self.check_origin(headers, scope["path"]) or self.check_size(headers)
        app: Any = self.app if refusal is None else JSONResponse({"message": refusal[1]}, refusal[0])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in SECURITY_HEADERS.items():
                    MutableHeaders(scope=message)[name] = value
            await send(message)

        await app(scope, receive, send_with_headers)

    @property
    def address(self) -> str:
        return f"http://{min(self.hosts)}"

    def check_host(self, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if host.lower() in self.hosts:
            return None
        return 403, f"The studio does not accept requests for host {host[:100]!r}; open it at {self.address}."

    def check_origin(self, headers: Headers, path: str) -> tuple[int, str] | None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return 403, f"A page of {origin[:100]!r} may not use the studio; open it at {self.address}."
        # Following a link to the page starts no computation; a link to another address could.
        follows_link = headers.get("sec-fetch-mode") == "navigate" and path == "/"
        if site not in ("none", "same-origin") and not follows_link:
            return 403, f"Another page may not use the studio; open it at {self.address}."
        return None

    def check_size(self, headers: Headers) -> tuple[int, str] | None:
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            return 411, "A request must state its length in the header Content-Length."
        if not (length.isascii() and length.isdigit()):
            return 400, "Content-Length must be a whole number."
        if int(length) > MAX_BODY_BYTES:
            return 413, (
                f"A request may have at most {MAX_BODY_BYTES / 1e6:.0f} MB; got {int(length) / 1e6:.1f} MB. Use a "
                "sample of the points."
            )
        return None
