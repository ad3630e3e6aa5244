"""Start the studio on a port of this machine, open it in the browser, and stop it on Ctrl-C."""

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

import h11
import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from picaset.studio.application import create_application
from picaset.studio.background import join_threads
from picaset.studio.rooms import Settings, build_rooms

HTTP_PORT = 80
"""The default port of HTTP; browsers leave it out of Host and Origin."""
REQUEST_SECONDS = 20.0
"""Time in which a client must have sent a whole request, or read a response; slower ones are disconnected."""
MAX_FILES = 65_536
"""Limit of open files that the studio requests from the system; each connection uses one."""


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    output: Callable[[str], object] = print,
) -> bool:
    """Run the studio until Ctrl-C; returns whether all its threads have ended.

    Args:
        settings: Folders of runs and networks.
        host: Address to listen on.
        port: Port to listen on; 0 chooses a free one.
        browser: Whether to open the page in the browser.
        output: Called with each line for the terminal.
    """
    listener = open_socket(host, port)
    allow_connections()
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        address = f"http://{url_host(host)}:{port}"
        # A worker thread gets the interpreter back sooner from the thread that parses requests.
        sys.setswitchinterval(0.001)
        # Sets are small: more threads would wait for each other, and the browser needs a core.
        torch.set_num_threads(1)
        rooms = build_rooms(settings)
        application = create_application(rooms, hosts=accepted_hosts(host, port))

        def announce() -> None:
            output(f"picaset studio: {address}   (press Ctrl-C to stop)")
            if not (host == "localhost" or is_loopback(host)):
                output(f"Anybody on the network who can reach {host} can use this studio; there is no password.")
            sys.stdout.flush()
            if browser:  # in a thread: some browsers block their caller
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        def close_rooms() -> None:
            output("Closing the studio ...")
            sys.stdout.flush()
            for room in rooms:
                room.close()

        Server(application, ready=announce, closing=close_rooms).run(sockets=[listener])
    ended = False
    with contextlib.suppress(KeyboardInterrupt):
        ended = join_threads(seconds=10)
    output("The studio is closed.")
    return ended


class Server(uvicorn.Server):
    """A uvicorn server with callbacks, for which Ctrl-C is the ordinary way to stop.

    Args:
        application: The ASGI application.
        ready: Called when the server accepts requests.
        closing: Called before the server waits for open requests; refuses them.
    """

    def __init__(self, application: Any, *, ready: Callable[[], None], closing: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                log_level="error",
                access_log=False,
                timeout_graceful_shutdown=1,
                lifespan="on",
            )
        )
        self.ready = ready
        self.closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.closing()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that still run are cut off silently
        await super().shutdown(sockets)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            super().run(sockets)


class Connection(H11Protocol):
    """A connection that is closed if its client does not send a request, or read a response, in time."""

    request_deadline: asyncio.TimerHandle | None = None
    response_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.request_deadline = self.loop.call_later(REQUEST_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self.request_deadline is None:  # the first part of the next request
            self.request_deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.request_deadline.cancel()
            self.request_deadline = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.response_deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.response_deadline is not None:
            self.response_deadline.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for deadline in (self.request_deadline, self.response_deadline):
            if deadline is not None:
                deadline.cancel()
        super().connection_lost(exc)


def allow_connections() -> None:
    """Raise the limit of open files as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def open_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that the port is known and reserved before the server starts."""
    expected = f"--host must be one address of this machine, such as 127.0.0.1; got {host!r}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be given: asyncio sets TCP_NODELAY only where it is; without, small responses come 40 ms late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except socket.gaierror as error:
        listener.close()
        raise ValueError(f"{expected} ({error.strerror}).") from None
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"Port {port} of {host} cannot be used ({reason}); leave --port out to use a free one."
        ) from None
    if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:  # 0.0.0.0 has many spellings
        listener.close()
        raise ValueError(f"{expected}, which means all of them.")
    listener.listen(2048)
    return listener


def accepted_hosts(host: str, port: int) -> list[str]:
    """Return the values of the header Host by which a browser may address this server.

    Example:
        >>> accepted_hosts("192.168.1.2", 80)  # browsers leave the default port out
        ['192.168.1.2', '192.168.1.2:80']
    """
    names = {host}
    if host == "localhost" or is_loopback(host):
        names |= {"127.0.0.1", "localhost", "::1"}
    hosts = {url_host(name) for name in names}
    return sorted({f"{name}:{port}" for name in hosts} | (hosts if port == HTTP_PORT else set[str]()))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_host(host: str) -> str:
    """Write a host as in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
