"""The room of faces: what it answers is what the networks compute, and what cannot be done is said."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from picaset.lab.data.drawn_faces import draw_faces
from picaset.lab.networks.odd_one_out import OddOneOutNetwork, odd_faces_network
from picaset.lab.tasks.odd_one_out import DRAWN_SEED, as_tensor
from picaset.studio.rooms import Settings
from picaset.studio.rooms.odd.faces import NUM_DRAWN, describe_shortage
from picaset.studio.rooms.odd.room import build_odd_room
from tests.studio import studio

FACES = draw_faces(NUM_DRAWN, seed=DRAWN_SEED + 1)


@pytest.fixture(scope="module")
def here(studio_weights):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("PICASET_DATA", raising=False)
        with studio(weights=studio_weights) as found:
            yield found


def get(here, path: str, status: int = 200):
    answer = here.client.get(f"/api/odd/{path}")
    assert answer.status_code == status
    return answer.json() if status == 200 else answer.json()["message"]


@pytest.mark.parametrize("size", [3, 8, 64])
@pytest.mark.parametrize("named", ["", "&first=Smiling", "&first=Smiling&second=Dark_Hair"])
def test_all_faces_of_a_set_but_one_have_its_two_attributes(here, size, named):
    found = get(here, f"set?size={size}&seed=3{named}")
    shared = [len(set(found["pair"]) & set(face["attributes"])) for face in found["faces"]]
    assert sorted(shared) == [0] + [2] * (size - 1)
    assert len({face["number"] for face in found["faces"]}) == size
    assert {word.partition("=")[2] for word in named.split("&") if word} <= set(found["pair"])
    assert found == get(here, f"set?size={size}&seed=3{named}")


@pytest.mark.parametrize("model", ["sa-gpb", "sa-pma"])
def test_scores_are_what_the_network_says_of_the_pictures_that_are_shown(here, model, studio_weights):
    numbers = [face["number"] for face in get(here, "set?seed=5")["faces"]]
    pictures = [here.client.get(f"/api/odd/face/drawn/{number}") for number in numbers]
    assert {picture.headers["content-type"] for picture in pictures} == {"image/png"}
    images = np.stack([np.array(Image.open(io.BytesIO(picture.content))) for picture in pictures])
    np.testing.assert_array_equal(images, FACES.images[numbers])
    network = odd_faces_network()
    if model != "sa-gpb":
        network = OddOneOutNetwork.from_pretrained(studio_weights / "odd_one_out_faces_sa_pma")
    with torch.no_grad():
        expected = network(as_tensor(images)[None]).softmax(dim=1)[0].tolist()
    for _ in range(2):  # the second time its vectors are remembered
        answer = here.client.post("/api/odd/scores", json={"model": model, "faces": numbers}).json()
        assert answer["scores"] == pytest.approx(expected, abs=1e-4)


def test_where_no_attributes_were_named_fewer_faces_are_the_advice():
    said = describe_shortage(np.zeros((5, 2), dtype=bool), [], 64)
    assert said == (
        "There are not enough faces for a set of 64: no 63 faces share any two attributes. Choose fewer faces."
    )


@pytest.mark.parametrize(("kind", "shared"), [("fits", {2}), ("odd", {0}), ("any", {0, 1, 2})])
def test_another_face_is_of_the_kind_that_is_wanted_and_not_among_the_others(here, kind, shared):
    but = list(range(60))
    asked = f"another?first=Smiling&second=Dark_Hair&kind={kind}&" + "&".join(f"exclude={number}" for number in but)
    for seed in range(5):
        face = get(here, f"{asked}&seed={seed}")
        assert face["number"] not in but
        assert len({"Smiling", "Dark_Hair"} & set(face["attributes"])) in shared


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("set?size=65", 422, "size: input should be less than or equal to 64."),
        ("set?size=2", 422, "size: input should be greater than or equal to 3."),
        (
            "set?size=8&first=Bald&second=Bangs",
            422,
            "A set of 8 needs 7 faces with bald and bangs and one with neither",
        ),
        (
            "set?size=64&first=Bald",
            422,
            "There are not enough faces for a set of 64: no 63 faces share bald and any other attribute.",
        ),
        ("set?first=Smiling&second=Smiling", 422, "The two attributes must differ; both are smiling."),
        ("set?first=../etc", 422, "Unknown attribute '../etc'; choose one of Bald, Bangs,"),
        ("face/drawn/512", 404, "Faces are numbered from 0 to 511; got 512."),
        ("set?source=celeba", 404, "CelebA was not found; set PICASET_DATA to the folder that contains it."),
    ],
)
def test_requests_for_missing_things_are_refused_with_the_reason(here, path, status, message):
    assert message in get(here, path, status)


def test_faces_that_cannot_be_scored_are_refused_with_the_reason(here):
    for faces, message in {
        (1, 2): "at least 3 items",
        (1, 2, 600): "Faces are numbered from 0 to 511",
        (-1, 2, 3): "entry 1",
    }.items():
        answer = here.client.post("/api/odd/scores", json={"model": "sa-gpb", "faces": faces})
        assert answer.status_code in (404, 422)
        assert message in answer.json()["message"]


def test_the_room_shows_those_networks_that_are_there(here, tmp_path, studio_weights):
    assert [model["name"] for model in get(here, "options")["models"]] == ["sa-gpb", "sa-pb", "sa-pma"]
    assert build_odd_room(Settings(weights=tmp_path)) is None
    (tmp_path / "odd_one_out_faces_sa_pb").symlink_to(studio_weights / "odd_one_out_faces_sa_pb")
    with studio(weights=tmp_path) as found:
        assert [model["name"] for model in get(found, "options")["models"]] == ["sa-pb"]


def test_celeba_is_offered_where_it_exists_and_its_faults_are_reported(tmp_path, monkeypatch):
    (tmp_path / "celeba").mkdir()
    monkeypatch.setenv("PICASET_DATA", str(tmp_path))
    with studio() as found:
        assert [source["name"] for source in get(found, "options")["sources"]] == ["drawn", "celeba"]
        assert get(found, "set?source=celeba", 422).startswith("CelebA cannot be read: ")
        assert len(get(found, "set")["faces"]) == 8
