"""A studio for the tests: in the process, and as a server that a browser can be sent to."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.testclient import TestClient

from picaset.studio.application import create_application
from picaset.studio.rooms import Room, Settings, build_rooms
from picaset.studio.server import hosts_of, listen

RECORDS = Path(__file__).parent.parent / "results/runs"
HOST = "127.0.0.1:8000"


@dataclass(frozen=True)
class Studio:
    """An application and a client that asks it."""

    application: Any
    rooms: Sequence[Room]
    client: TestClient

    def fit(self, points: Any, method: str = "picaso", **more: Any) -> Any:
        return self.client.post("/api/cluster/fit", json={"method": method, "points": points, **more})


@contextmanager
def studio(*runs: Path) -> Iterator[Studio]:
    """In this process, without a server."""
    rooms = build_rooms(Settings(runs=runs or (RECORDS,)))
    application = create_application(rooms, hosts=[HOST])
    try:
        yield Studio(application, rooms, TestClient(application, base_url=f"http://{HOST}"))
    finally:
        for room in rooms:
            room.close()


@contextmanager
def served(*runs: Path) -> Iterator[str]:
    """On a free port, in a thread; gives the address."""
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    rooms = build_rooms(Settings(runs=runs or (RECORDS,)))
    application = create_application(rooms, hosts=hosts_of("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def blobs(size: int = 60, *, shift: int | float = 0, seed: int = 0) -> list[list[float]]:
    """Points of four clusters."""
    random = np.random.default_rng(seed)
    centres = np.array([[-3.0, -3.0], [3.0, 3.0], [-3.0, 3.0], [3.0, -3.0]])
    points = centres[np.arange(size) % 4] + 0.3 * random.standard_normal((size, 2)) + shift
    return points.round(4).tolist()
