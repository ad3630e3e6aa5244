"""CLEVR as its owners distribute it: what is read, and what is refused."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from picaset.lab.data import clevr
from picaset.lab.data.clevr import read_clevr
from tests.clevr_files import PUBLISHED, write_clevr


@pytest.fixture
def folder(tmp_path) -> Path:
    write_clevr(tmp_path / "clevr")
    return tmp_path / "clevr"


def read(folder: Path, part="train", size=64):
    read_clevr.cache_clear()
    return read_clevr(folder, folder.parent / "cache", part=part, size=size)


def cached(folder: Path) -> list[str]:
    return sorted(os.listdir(folder.parent / "cache")) if (folder.parent / "cache").exists() else []


@pytest.mark.parametrize("part", ["train", "val"])
def test_images_and_objects_are_those_of_the_files(tmp_path, part):
    expected = write_clevr(tmp_path / "clevr")[part]
    scenes = read(tmp_path / "clevr", part)
    assert np.array_equal(scenes.present, expected.present)
    assert np.array_equal(scenes.coordinates, expected.coordinates)
    assert np.array_equal(scenes.properties, expected.properties)
    assert scenes.description == f"CLEVR, {len(expected)}-image subset"
    # An image that was made wider, perhaps written as JPEG, and shown as a square again is nearly the one it was.
    assert np.abs(scenes.images.astype(float) - expected.images).mean() < 3


@pytest.mark.parametrize(
    ("info", "description"),
    [
        ({"version": "1.0", "note": "rendered with the assets; not the published images"}, "small rendered CLEVR"),
        (PUBLISHED | {"note": "not the published images"}, "small rendered CLEVR"),
        (PUBLISHED | {"date": "11/16/2026"}, "scenes in CLEVR's layout"),  # as its program says of scenes made since
        ({}, "scenes in CLEVR's layout"),
        (None, "scenes in CLEVR's layout"),
    ],
)
def test_only_the_published_images_are_called_clevr(tmp_path, info, description):
    write_clevr(tmp_path / "clevr", info=info)
    assert read(tmp_path / "clevr", "val").description == f"{description}, 3 images"
    assert read(tmp_path / "clevr", "val").description == f"{description}, 3 images", (
        "the decoded file says something else"
    )


def test_the_whole_of_the_published_images_is_no_subset(folder, monkeypatch):
    monkeypatch.setitem(clevr.NUM_PUBLISHED, "val", 3)
    assert read(folder, "val").description == "CLEVR"


def test_a_coordinate_may_lie_outside_through_rounding(folder):
    in_object("3d_coords", [3.0005, -3.0005, 0])(folder)
    assert read(folder).coordinates[2, 1].tolist() == pytest.approx([3.0005, -3.0005, 0])


def test_the_whole_image_is_shown_whatever_its_shape(folder):
    from PIL import Image

    picture = Image.new("RGB", (96, 64), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 8, 64))
    picture.paste((255, 255, 255), (88, 0, 96, 64))
    picture.save(folder / "images/val/CLEVR_val_000001.png")
    shown = read(folder, "val").images[1]
    assert shown.shape == (64, 64, 3)
    assert int(shown[:, :4].min()) > 200
    assert int(shown[:, -4:].min()) > 200


def test_how_wide_an_image_was_is_remembered(folder):
    from PIL import Image

    Image.new("RGB", (160, 120)).save(folder / "images/val/CLEVR_val_000001.png")
    for _ in range(2):  # decoded, and from the decoded file
        assert read(folder, "val").aspects.tolist() == pytest.approx([1.5, 160 / 120, 1.5])


def test_images_are_decoded_once_for_each_size_and_mapped_into_memory(folder, monkeypatch):
    first, small = np.array(read(folder).images), read(folder, size=32)
    assert small.images.shape[1:] == (32, 32, 3)
    assert len(cached(folder)) == 2
    monkeypatch.setattr(clevr, "decode", None)
    again = read(folder).images
    assert isinstance(again, np.memmap)
    assert np.array_equal(again, first)


def test_a_changed_image_or_scene_file_is_read_again(folder):
    read(folder)
    images = folder / "images/train"
    (images / "CLEVR_train_000001.jpg").write_bytes((images / "CLEVR_train_000002.jpg").read_bytes())
    scenes = read(folder)
    assert np.array_equal(scenes.images[1], scenes.images[2])
    spoiled(lambda scene: scene["objects"].pop(), 0)(folder)
    assert read(folder).present[0].sum() == scenes.present[0].sum() - 1


def spoiled(spoil, number=2):
    def change(folder: Path) -> None:
        path = folder / "scenes/CLEVR_train_scenes.json"
        found = json.loads(path.read_text())
        spoil(found["scenes"][number])
        path.write_text(json.dumps(found))

    return change


def in_object(key: str, value):
    return spoiled(lambda scene: scene["objects"][1].update({key: value}))


def without(key: str):
    return spoiled(lambda scene: scene["objects"][1].pop(key))


def written(text: str):
    return lambda folder: (folder / "scenes/CLEVR_train_scenes.json").write_text(text)


def cut_short(share: float):
    def cut(folder: Path) -> None:
        path = folder / "images/train/CLEVR_train_000003.jpg"
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    return cut


def too_many(scene) -> None:
    scene["objects"] = (4 * scene["objects"])[:11]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (written('{"scenes": ['), "is not JSON .*was it cut short"),
        (written("[]"), "must hold a JSON object; got list"),
        (written('{"scenes": []}'), '"scenes" is a list of at least one scene'),
        (written('{"scenes": [7]}'), "scene 0: 'image_filename' is missing"),
        (spoiled(lambda scene: scene.pop("image_filename")), "scene 2: 'image_filename' is missing"),
        (spoiled(lambda scene: scene.pop("objects")), "scene 2: 'objects' is missing"),
        (
            spoiled(lambda scene: scene.update(objects=[])),
            "scene 2: a scene must have a list of 1 to 10 objects; got 0",
        ),
        (
            spoiled(lambda scene: scene.update(objects={})),
            "scene 2: a scene must have a list of 1 to 10 objects; got a dict",
        ),
        (spoiled(too_many), "scene 2: a scene must have a list of 1 to 10 objects; got 11"),
        (spoiled(lambda scene: scene.update(image_filename="../a.png")), "without a path; got '../a.png'"),
        (spoiled(lambda scene: scene.update(image_filename="CLEVR_train_000001.jpg")), "scene 2: .* is listed twice"),
        (without("color"), "scene 2, object 1: 'color' is missing"),
        (without("3d_coords"), "scene 2, object 1: '3d_coords' is missing"),
        (in_object("color", "pink"), "object 1: color must be one of gray, red, .*yellow; got 'pink'"),
        (in_object("shape", "cone"), "object 1: shape must be one of cube, sphere, cylinder; got 'cone'"),
        (in_object("material", None), "object 1: material must be one of rubber, metal; got None"),
        (in_object("size", ["large"]), r"object 1: size must be one of small, large; got \['large'\]"),
        (in_object("3d_coords", [0, 1]), r"three numbers from -3 to 3; got \[0, 1\]"),
        (in_object("3d_coords", [0, 1, "2"]), "three numbers from -3 to 3"),
        (in_object("3d_coords", [0, 1, True]), "three numbers from -3 to 3"),
        (in_object("3d_coords", [0, 1, float("nan")]), "three numbers from -3 to 3"),
        (in_object("3d_coords", [0, 3.2, 0.7]), r"three numbers from -3 to 3; got \[0, 3.2, 0.7\]"),
        (in_object("3d_coords", [0, -3.002, 0.7]), "three numbers from -3 to 3"),
        (in_object("3d_coords", [0, 10**399, 0.7]), r"three numbers from -3 to 3; got \[0, 1000"),
        (in_object("3d_coords", [0, float("-inf"), 0.7]), "three numbers from -3 to 3"),
        (
            lambda folder: (folder / "scenes/CLEVR_train_scenes.json").unlink(),
            "CLEVR_train_scenes.json does not exist; CLEVR is images/ and scenes/",
        ),
        (lambda folder: (folder / "images/train").rename(folder / "images/other"), "train is not a folder; CLEVR is"),
        (
            lambda folder: (folder / "images/train/CLEVR_train_000003.jpg").unlink(),
            r"000003\.jpg does not exist; 1 of the 4 images that CLEVR_train_scenes.json lists are missing",
        ),
        (cut_short(0.5), r"000003\.jpg is not an image that can be read .*truncated"),
        (cut_short(0), r"000003\.jpg is not an image that can be read"),
    ],
)
def test_what_is_damaged_is_refused_and_nothing_is_left_half_written(folder, spoil, message):
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read(folder)
    assert cached(folder) == []


def test_a_full_disk_leaves_nothing_half_written(folder, monkeypatch):
    def full(path, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(clevr, "decode", full)
    with pytest.raises(OSError, match="No space left on device"):
        read(folder)
    assert cached(folder) == []


def test_a_damaged_cache_is_refused_and_says_what_to_do(folder):
    read(folder)
    (name,) = cached(folder)
    path = folder.parent / "cache" / name
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=f"{name} is not a whole NumPy file .*remove it, and it will be created again"):
        read(folder)


@pytest.mark.as_installed
def test_another_part_is_refused(folder):
    with pytest.raises(ValueError, match="part must be one of 'train', 'val'; got 'test'"):
        read(folder, "test")
