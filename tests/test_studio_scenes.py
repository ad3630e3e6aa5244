"""The room of scenes: what it answers is what the networks compute, and what cannot be done is said."""

import io
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from picaset.lab.data.ray_tracer import trace_rays
from picaset.lab.data.scenes import Scenes, describe_object, from_vectors
from picaset.lab.data.traced_scenes import VIEW_ASPECT, ray_tracer_inputs, trace_scene
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.tasks.scene_scores import SURE
from picaset.studio.rooms import Settings
from picaset.studio.rooms.scenes.pictures import DISPLAY_SIZE, FIRST_SEED
from picaset.studio.rooms.scenes.room import build_scenes_room
from tests.studio import studio

SCENE = dict(seed=3, objects=5)


@pytest.fixture(scope="module")
def here(studio_weights):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("PICASET_DATA", raising=False)
        with studio(weights=studio_weights) as found:
            yield found


@pytest.fixture(scope="module")
def scene():
    return trace_scene(FIRST_SEED + 3, 5)


def test_the_picture_is_the_scene_as_it_is_traced(here, scene):
    answer = here.client.get("/api/scenes/picture", params=SCENE)
    assert answer.headers["content-type"] == "image/png"
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(answer.content))), scene.picture(DISPLAY_SIZE))


@pytest.mark.parametrize("model", ["ours", "pb3", "slot-attention"])
def test_the_last_step_is_the_prediction_of_the_network(here, scene, studio_weights, model):
    network = SceneNetwork.from_pretrained(studio_weights / f"scenes_{model.replace('-', '_')}").eval()
    with torch.no_grad():
        expected = from_vectors(network(torch.as_tensor(scene.picture(32)).movedim(-1, 0)[None]))
    answer = here.client.post("/api/scenes/predict", json={"model": model, "scene": SCENE}).json()
    last = {one["template"]: one for one in answer["steps"][-1]["predictions"]}
    assert set(last) == set(torch.nonzero(expected.presence[0] > SURE).flatten().tolist())
    for template, one in last.items():
        assert one["description"] == describe_object(expected.properties[0, template].numpy())
        assert one["presence"] == pytest.approx(float(expected.presence[0, template]), abs=1e-3)
    assert len(answer["steps"]) == 4
    assert answer["steps"][0]["attention"] == []
    for step in answer["steps"][1:]:
        assert [max(look) for look in step["attention"]] == [255] * 10


def test_true_objects_are_returned_with_their_place_in_the_picture(here, scene):
    there = here.client.post("/api/scenes/predict", json={"model": "pb3", "scene": SCENE}).json()["objects"]
    assert [thing["description"] for thing in there] == [
        describe_object(properties) for properties in scene.objects.properties[0, :5].numpy()
    ]
    owner = trace_rays(*ray_tracer_inputs(scene.layouts), size=(96, 96), samples=1, stretch=VIEW_ASPECT).owner.reshape(
        96, 96
    )
    for number, thing in enumerate(there):
        down, right = torch.nonzero(owner == number).float().mean(dim=0) / 96
        assert thing["position"] == pytest.approx([float(right), float(down)], abs=0.02)


@pytest.mark.parametrize(
    ("changed", "status", "message"),
    [
        ({"objects": 11}, 422, "objects: input should be less than or equal to 10."),
        ({"size": 9}, 422, "size: extra inputs are not permitted."),
        ({"seed": -1}, 422, "seed: input should be greater than or equal to 0."),
        ({"source": "clevr"}, 404, "CLEVR was not found; set PICASET_DATA to the folder that contains it."),
    ],
)
def test_a_scene_that_there_is_not_is_refused_with_the_reason(here, changed, status, message):
    for answer in (
        here.client.get("/api/scenes/picture", params=SCENE | changed),
        here.client.post("/api/scenes/predict", json={"model": "pb3", "scene": SCENE | changed}),
    ):
        assert answer.status_code == status
        assert message in answer.json()["message"]


def test_clevr_is_offered_where_it_exists_and_its_faults_are_reported(tmp_path, monkeypatch, studio_weights):
    (tmp_path / "clevr").mkdir()
    monkeypatch.setenv("PICASET_DATA", str(tmp_path))
    with studio(weights=studio_weights) as found:
        sources = found.client.get("/api/scenes/options").json()["sources"]
        assert [source["name"] for source in sources] == ["traced", "clevr"]
        answer = found.client.get("/api/scenes/picture", params={"source": "clevr"})
        assert answer.status_code == 422
        assert answer.json()["message"].startswith("CLEVR cannot be read: ")


def test_while_clevr_is_loaded_requests_get_an_error_and_traced_scenes_work(tmp_path, monkeypatch, studio_weights):
    (tmp_path / "clevr").mkdir()
    monkeypatch.setenv("PICASET_DATA", str(tmp_path))
    go, sizes = threading.Event(), list[int]()

    def read(folder, cache, *, part, size):
        sizes.append(size)
        go.wait(30)
        traced = [trace_scene(seed, seed) for seed in (3, 4)]
        present, coordinates, properties = (
            torch.cat(parts).numpy() for parts in zip(*(one.objects for one in traced), strict=True)
        )
        images, aspects = np.stack([one.picture(size) for one in traced]), np.full(2, 1.5)
        return Scenes(images, present > 0, coordinates, properties, aspects, "two")

    monkeypatch.setattr("picaset.studio.rooms.scenes.pictures.read_clevr", read)
    asked = {"model": "pb3", "scene": {"source": "clevr", "objects": 4}}
    with studio(weights=studio_weights) as found:
        for _ in range(2):
            answer = found.client.post("/api/scenes/predict", json=asked)
            assert answer.status_code == 422
            assert answer.json()["message"] == "CLEVR is being loaded; try again in a moment."
        assert found.client.get("/api/scenes/picture", params=SCENE).status_code == 200
        go.set()
        picture = found.client.get("/api/scenes/picture", params=asked["scene"])
        np.testing.assert_array_equal(
            np.array(Image.open(io.BytesIO(picture.content))), trace_scene(4, 4).picture(DISPLAY_SIZE)
        )
        there = found.client.post("/api/scenes/predict", json=asked).json()["objects"]
        assert [thing["description"] for thing in there] == [
            describe_object(properties) for properties in trace_scene(4, 4).objects.properties[0, :4].numpy()
        ]
    assert sorted(sizes) == [32, DISPLAY_SIZE]


def test_the_room_shows_those_networks_that_are_there(here, tmp_path, studio_weights):
    assert [model["name"] for model in here.client.get("/api/scenes/options").json()["models"]] == [
        "ours", "pb3", "slot-attention",
    ]  # fmt: skip
    assert build_scenes_room(Settings(weights=tmp_path)) is None
    (tmp_path / "scenes_pb3").symlink_to(studio_weights / "scenes_pb3")
    with studio(weights=tmp_path) as found:
        assert [model["name"] for model in found.client.get("/api/scenes/options").json()["models"]] == ["pb3"]
