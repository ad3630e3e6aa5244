"""The studio for tests: in this process, or as a server for a browser."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from starlette.testclient import TestClient

from picaset.lab.data.scenes import VECTOR_DIM
from picaset.lab.networks.odd_one_out import WEIGHTS, OddOneOutNetwork
from picaset.lab.networks.scene_decoders import CascadeDecoder, SlotDecoder
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.studio.application import create_application
from picaset.studio.rooms import Room, Settings, build_rooms
from picaset.studio.rooms.cluster.schemas import MethodName
from picaset.studio.server import accepted_hosts, open_socket

RECORDS = Path(__file__).parent.parent / "results/runs"
HOST = "127.0.0.1:8000"
SCENE_DECODERS = {"pb3": CascadeDecoder(16), "slot_attention": SlotDecoder(16), "ours": CascadeDecoder(16)}


@dataclass(frozen=True)
class Studio:
    """An application and a client for it."""

    application: Any
    rooms: Sequence[Room]
    client: TestClient

    def fit(self, points: Any, method: str = "picaso", **more: Any) -> Any:
        return self.client.post("/api/cluster/fit", json={"method": method, "points": points, **more})


def said(response: Any) -> str:
    """Return the message of an error response."""
    return response.json()["message"]


@contextmanager
def studio(*runs: Path, weights: Path = WEIGHTS) -> Iterator[Studio]:
    """Run the studio in this process, without a server."""
    rooms = build_rooms(Settings(runs=runs or (RECORDS,), weights=weights))
    application = create_application(rooms, hosts=[HOST])
    try:
        yield Studio(application, rooms, TestClient(application, base_url=f"http://{HOST}"))
    finally:
        for room in rooms:
            room.close()


@contextmanager
def served(*runs: Path, weights: Path = WEIGHTS) -> Iterator[str]:
    """Serve the studio on a free port, in a thread; yields the address."""
    listener = open_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    rooms = build_rooms(Settings(runs=runs or (RECORDS,), weights=weights))
    application = create_application(rooms, hosts=accepted_hosts("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def blobs(size: int = 60, *, shift: int | float = 0, seed: int = 0) -> list[list[float]]:
    """Return points of four clusters."""
    random = np.random.default_rng(seed)
    centres = np.array([[-3.0, -3.0], [3.0, 3.0], [-3.0, 3.0], [3.0, -3.0]])
    points = centres[np.arange(size) % 4] + 0.3 * random.standard_normal((size, 2)) + shift
    return points.round(4).tolist()


def small_networks(folder: Path) -> Path:
    """A network for every name of every room: shipped ones for points and one for faces, else small and untrained."""
    torch.manual_seed(0)
    for shipped in ("odd_one_out_faces", *(name.folder for name in MethodName if name.folder)):
        (folder / shipped).symlink_to(WEIGHTS / shipped)
    OddOneOutNetwork(dim=16, num_heads=2, pool="picaso").save_pretrained(folder / "odd_one_out_faces_sa_pb")
    OddOneOutNetwork(dim=16, num_heads=2, pool="attention").save_pretrained(folder / "odd_one_out_faces_sa_pma")
    bag = dict[str, Any](dim=16, num_heads=2, num_inducing=4)
    ViewClassifier(5, dim=16, num_heads=2, num_templates=2).save_pretrained(folder / "viewpoints_ours")
    Picaso(16, 5, num_decoder_blocks=0, **bag).save_pretrained(folder / "viewpoints_pb3")
    SetTransformer(16, 5, **bag).save_pretrained(folder / "viewpoints_set_transformer")
    DeepSets(16, 5, dim=16).save_pretrained(folder / "viewpoints_deep_sets")
    for name, decoder in SCENE_DECODERS.items():
        positions = "waves" if name == "ours" else "linear"
        scenes = SceneNetwork(VECTOR_DIM, decoder, dim=16, image_size=32, positions=positions)
        scenes.save_pretrained(folder / f"scenes_{name}")
    return folder
