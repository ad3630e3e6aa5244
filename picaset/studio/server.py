"""Start the studio on a port of this machine, open it in the browser, and end it on Ctrl-C."""

import contextlib
import ipaddress
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

import torch
import uvicorn

from picaset.studio.application import create_application
from picaset.studio.rooms import Settings, build_rooms

USUAL_PORT = 80
"""Of http; browsers leave it out of Host and Origin."""


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], object] = print,
) -> None:
    """Serve until Ctrl-C; port 0 takes one that is free."""
    listening = listen(host, port)
    with contextlib.closing(listening):
        port = listening.getsockname()[1]
        address = f"http://{bracketed(host)}:{port}"
        sys.setswitchinterval(0.001)  # a network in its thread waits less for a request that is being read
        torch.set_num_threads(1)  # small sets: more threads only wait for each other, and the browser needs one
        rooms = build_rooms(settings)
        application = create_application(rooms, hosts=hosts_of(host, port))

        def closing() -> None:
            say("Closing the studio ...")
            sys.stdout.flush()
            for room in rooms:
                room.close()

        server = Server(application, ready=lambda: opened(address, browser=browser, say=say), closing=closing)
        server.run(sockets=[listening])
    say("The studio is closed.")


class Server(uvicorn.Server):
    """uvicorn, which says when it answers, and for which Ctrl-C is the ordinary way to end.

    Args:
        application: What answers.
        ready: Called when it does.
        closing: Called before the requests that wait are waited for; it has them refused.
    """

    def __init__(self, application: Any, *, ready: Callable[[], None], closing: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="on"
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
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # who still computes is cut off without a word
        await super().shutdown(sockets)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            super().run(sockets)


def opened(address: str, *, browser: bool, say: Callable[[str], object]) -> None:
    say(f"picaset studio: {address}   (Ctrl-C ends it)")
    sys.stdout.flush()
    if browser:  # in a thread of its own: some browsers keep the one that opened them
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound already, so that the port is known and nobody else's."""
    if host in ("0.0.0.0", "::", ""):
        raise ValueError(f"--host must be the address by which this machine is reached; got {host!r}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sends small answers at once only where it is, and 40 ms later otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"Port {port} of {host} cannot be used ({reason}); leave --port out to take a free one."
        ) from None
    listening.listen(2048)
    return listening


def hosts_of(host: str, port: int) -> list[str]:
    """What a browser may call this server.

    Example:
        >>> hosts_of("192.168.1.2", 80)  # the usual port is not said
        ['192.168.1.2', '192.168.1.2:80']
    """
    names = {host}
    if host == "localhost" or is_loopback(host):
        names |= {"127.0.0.1", "localhost", "::1"}
    named = {bracketed(name) for name in names}
    return sorted({f"{name}:{port}" for name in named} | (named if port == USUAL_PORT else set[str]()))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
