"""Who may ask the studio, and how much: every request passes here before anything reads it.

A page from elsewhere must not be able to talk to a server on this machine, neither by a name that it made point here
(so the Host is checked) nor by a request across origins (so Origin and Sec-Fetch-Site are).
"""

from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1_000_000
"""Of a request's body."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Guard:
    """Refuse foreign hosts, foreign origins and large bodies; put the security policy on every answer.

    Args:
        app: The application that answers.
        hosts: As a browser names this server, with the port: ``127.0.0.1:8000``.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self.host(headers) or self.origin(headers, scope["path"]) or self.size(headers)
        answering: Any = self.app if refused is None else JSONResponse({"message": refused[1]}, refused[0])

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in HEADERS.items():
                    MutableHeaders(scope=message)[name] = value
            await send(message)

        await answering(scope, receive, send_with_policy)

    def host(self, headers: Headers) -> tuple[int, str] | None:
        named = headers.get("host", "")
        if named.lower() in self.hosts:
            return None
        return 403, f"This studio is at {sorted(self.hosts)[0]}; the request was for {named[:100]!r}."

    def origin(self, headers: Headers, path: str) -> tuple[int, str] | None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return 403, f"A page of {origin[:100]!r} may not use the studio; open it at {sorted(self.hosts)[0]}."
        # Following a link to the page is no request that makes anything work; one to another address would.
        follows_link = headers.get("sec-fetch-mode") == "navigate" and path == "/"
        if site not in ("none", "same-origin") and not follows_link:
            return 403, f"Another page may not use the studio; open it at {sorted(self.hosts)[0]}."
        return None

    def size(self, headers: Headers) -> tuple[int, str] | None:
        stated = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            return 411, "A request must say how long it is, by Content-Length."
        if not (stated.isascii() and stated.isdigit()):
            return 400, "Content-Length must be a whole number."
        if int(stated) > MOST_BYTES:
            return 413, (
                f"The studio takes at most {MOST_BYTES / 1e6:.0f} MB at once; got {int(stated) / 1e6:.1f} MB. Take a "
                "sample of the points."
            )
        return None
