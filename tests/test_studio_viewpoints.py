"""The room of toys: what it answers is what the networks compute, and what cannot be done is said."""

import io
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from picaset.lab.data.crops import centre_crops, normalize_images, patches
from picaset.lab.data.toys import GRIDS, SEED, Grid, render_toy, render_toys
from picaset.lab.data.views import CATEGORIES
from picaset.lab.experiments import experiment
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.set_networks import Picaso
from picaset.studio.background import LazyData
from picaset.studio.rooms import Settings
from picaset.studio.rooms.viewpoints.photographs import Category, SourceName, View, ViewImages
from picaset.studio.rooms.viewpoints.room import build_viewpoints_room
from picaset.studio.schemas import RequestError
from tests.studio import studio

VIEW = dict(category="truck", instance=2, elevation=3, azimuth=7, lighting=1)


@pytest.fixture(scope="module")
def here(studio_weights):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("PICASET_DATA", raising=False)
        with studio(weights=studio_weights) as found:
            yield found


@pytest.fixture(scope="module")
def toy():
    return render_toy(3, 2, Grid(elevations=(3,), azimuths=(7,), lightings=(1,)), seed=SEED)


def test_the_picture_shows_what_the_networks_see_with_four_times_the_pixels_per_side(here, toy):
    answer = here.client.get("/api/viewpoints/picture", params=VIEW)
    assert answer.headers["content-type"] == "image/png"
    picture = np.array(Image.open(io.BytesIO(answer.content)), dtype=float)
    assert picture.shape == (192, 192)
    difference = picture.reshape(48, 4, 48, 4).mean(axis=(1, 3)) - toy[0, 0].numpy()
    assert np.abs(difference).mean() < 4  # of 255: noise, and edges that are sampled otherwise


@pytest.mark.parametrize(("model", "kind"), [("pb3", Picaso), ("ours", ViewClassifier)])
def test_an_answer_is_what_the_network_says_of_the_middle_of_the_picture(here, toy, studio_weights, model, kind):
    network = kind.from_pretrained(studio_weights / f"viewpoints_{model}").eval()
    crop = normalize_images(centre_crops(toy[:, :1]))
    with torch.no_grad():
        shown = patches(crop) if model == "pb3" else crop
        expected, attention = network(shown).flatten().softmax(dim=0), network.trace(shown).attention
    answer = here.client.post("/api/viewpoints/predict", json={"model": model, "view": VIEW}).json()
    assert answer["probabilities"] == pytest.approx(expected.tolist(), abs=1e-4)
    heat = np.array(answer["heat"])
    assert heat.shape == (3, 2, 64)
    np.testing.assert_allclose(heat, 64 * attention[:, 0].mean(dim=2), atol=0.006)
    np.testing.assert_allclose(heat.mean(axis=2), 1, atol=0.006)


def test_a_network_without_attention_has_no_heat(here):
    answer = here.client.post("/api/viewpoints/predict", json={"model": "deep-sets", "view": VIEW}).json()
    assert answer["heat"] == []
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-3)


def test_real_photographs_are_found_by_their_labels():
    grid = Grid(training=(4,), test=(0,), elevations=(1, 5), azimuths=(0, 8), lightings=(2,))
    pictures = ViewImages(None)
    halves = render_toys(grid, (4,)), render_toys(grid, (0,))
    pictures.small_norb = LazyData("smallNORB", lambda: halves)
    pictures.small_norb.wait()
    for instance, half in {4: 0, 0: 1}.items():
        view = View(source=SourceName.SMALL_NORB, category=Category.CAR, instance=instance, elevation=5, azimuth=8,
                    lighting=2)  # fmt: skip
        assert torch.equal(pictures.image(view), halves[half].images[-1])
    with pytest.raises(RequestError, match="an image every 20 degrees of azimuth; got 70"):
        pictures.image(view.model_copy(update={"azimuth": 7}))
    with pytest.raises(RequestError, match="has no image of this view"):
        pictures.image(view.model_copy(update={"instance": 9}))


@pytest.mark.parametrize(
    ("changed", "status", "message"),
    [
        ({"azimuth": 36}, 422, "azimuth: input should be less than or equal to 35."),
        ({"category": "ship"}, 422, "category: input should be 'animal'"),
        ({"zoom": 2}, 422, "zoom: extra inputs are not permitted."),
        ({"instance": 10}, 422, "instance: input should be less than or equal to 9."),
        ({"source": "small-norb"}, 404, "smallNORB was not found; set PICASET_DATA to the folder that contains it."),
    ],
)
def test_a_view_that_there_is_not_is_refused_with_the_reason(here, changed, status, message):
    for answer in (
        here.client.get("/api/viewpoints/picture", params=VIEW | changed),
        here.client.post("/api/viewpoints/predict", json={"model": "pb3", "view": VIEW | changed}),
    ):
        assert answer.status_code == status
        assert message in answer.json()["message"]


def test_the_room_shows_those_networks_that_are_there(here, tmp_path, studio_weights):
    models = here.client.get("/api/viewpoints/options").json()["models"]
    assert {model["name"]: model["num_steps"] for model in models} == {
        "ours": 3, "pb3": 3, "set-transformer": 1, "deep-sets": 0,
    }  # fmt: skip
    assert build_viewpoints_room(Settings(weights=tmp_path)) is None
    (tmp_path / "viewpoints_pb3").symlink_to(studio_weights / "viewpoints_pb3")
    with studio(weights=tmp_path) as found:
        assert [room.name for room in found.rooms] == ["viewpoints", "runs"]
        assert [model["name"] for model in found.client.get("/api/viewpoints/options").json()["models"]] == ["pb3"]


def test_only_what_training_had_is_called_so(here):
    toys = here.client.get("/api/viewpoints/options").json()["sources"][0]
    task = experiment("viewpoints-azimuth-pb3-toys", profile="quick").task
    grid = GRIDS[task.data.removeprefix("toys-")]
    assert toys["trained_instances"] == list(grid.training)
    assert toys["trained_elevations"] == list(grid.elevations)
    assert toys["trained_lightings"] == list(grid.lightings)


def test_categories_are_those_of_the_networks_answers(here):
    assert here.client.get("/api/viewpoints/options").json()["categories"] == list(Category) == list(CATEGORIES)


def test_a_network_that_cannot_be_read_is_reported_and_the_others_predict(tmp_path, studio_weights):
    for folder in studio_weights.glob("viewpoints_*"):
        shutil.copytree(folder, tmp_path / folder.name)
    with (tmp_path / "viewpoints_pb3/model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    (tmp_path / "viewpoints_ours/config.json").write_text("{")
    with studio(weights=tmp_path) as found:
        models = found.client.get("/api/viewpoints/options").json()["models"]
        steps = {"ours": 0, "pb3": 3, "set-transformer": 1, "deep-sets": 0}
        assert {model["name"]: model["num_steps"] for model in models} == steps
        for model, message in {"pb3": "was it cut short?", "ours": "is not JSON", "deep-sets": ""}.items():
            answer = found.client.post("/api/viewpoints/predict", json={"model": model, "view": VIEW})
            assert answer.status_code == (422 if message else 200)
            assert message in answer.json().get("message", "")
