"""Generated scenes: CLEVR's rules hold in each of them, and the pictures show what the objects say."""

import numpy as np
import pytest
import torch

from picaset.lab.data import traced_scenes
from picaset.lab.data.ray_tracer import rays
from picaset.lab.data.scene_layouts import RADII, draw_layouts, ground_directions
from picaset.lab.data.scenes import PROPERTIES, describe_object
from picaset.lab.data.traced_scenes import (
    COLOURS,
    VIEW_ASPECT,
    load_traced_scenes,
    ray_tracer_inputs,
    trace_block,
    visible_layouts,
)


@pytest.fixture(scope="module")
def layouts():
    return draw_layouts(300, np.random.default_rng(0))


def pairs(layouts):
    """Differences between the places of all pairs of objects of a scene, with the radii of both, scene by scene."""
    for scene, count in enumerate(layouts.num_objects):
        first, second = np.triu_indices(count, k=1)
        away = layouts.places[scene, first] - layouts.places[scene, second]
        yield scene, away, layouts.radii[scene, first] + layouts.radii[scene, second]


def test_there_are_three_to_ten_objects_equally_often(layouts):
    counts = np.bincount(layouts.num_objects, minlength=11)
    assert counts[:3].sum() == 0
    assert counts[3:].min() > 15


def test_objects_keep_their_distance(layouts):
    for _, away, radii in pairs(layouts):
        assert (np.linalg.norm(away, axis=1) - radii >= 0.25).all()


def test_left_and_behind_are_never_in_doubt(layouts):
    directions = ground_directions(layouts.cameras)
    for scene, away, _ in pairs(layouts):
        assert (np.abs(away @ directions[scene].T) >= 0.4).all()


def test_ground_directions_are_those_of_the_camera(layouts):
    _, cameras, _ = ray_tracer_inputs(layouts)
    ahead, right = ground_directions(layouts.cameras)[0]
    corners = rays(cameras, size=(1, 2))[0].numpy()  # left and right of the middle
    assert (corners[1] - corners[0])[:2] @ right > 0
    assert corners.mean(axis=0)[:2] @ ahead > 0


def test_objects_stand_on_the_ground_inside_the_square(layouts):
    assert np.abs(layouts.places[layouts.present]).max() <= 3
    assert set(layouts.radii[layouts.present].tolist()) == set(RADII.tolist())
    solids, _, _ = ray_tracer_inputs(layouts)
    present = torch.as_tensor(layouts.present)
    assert torch.equal(solids.centre[..., 2][present], solids.half_size[..., 2][present])


def test_all_values_of_all_properties_occur(layouts):
    for index, values in enumerate(PROPERTIES.values()):
        assert set(np.unique(layouts.properties[..., index])) == set(range(len(values)))


def test_something_is_seen_of_every_object():
    found = visible_layouts(40, np.random.default_rng(1))
    drawn = draw_layouts(40, np.random.default_rng(1))
    assert traced_scenes.all_visible(found).all()
    assert not traced_scenes.all_visible(drawn).all(), "nothing was hidden, so that nothing was tested"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(traced_scenes, "BLOCK", 5)


def test_the_first_scenes_of_a_seed_are_the_same_however_many_there_are(tmp_path, small_blocks):
    few = load_traced_scenes(3, seed=1, size=16, folder=tmp_path)
    more = load_traced_scenes(7, seed=1, size=16, folder=tmp_path)
    other = load_traced_scenes(3, seed=2, size=16, folder=tmp_path)
    assert np.array_equal(few.images, more.images[:3])
    assert np.array_equal(few.coordinates, more.coordinates[:3])
    assert not np.array_equal(few.coordinates, other.coordinates)
    assert len({image.tobytes() for image in more.images}) == 7


def test_only_a_few_blocks_wait_to_be_written(small_blocks, monkeypatch):
    asked = list[int]()

    def empty_block(number, *, seed, size, most):
        asked.append(number)
        return torch.full((min(5, most), 4, 4, 3), number, dtype=torch.uint8), torch.zeros(min(5, most), 10, 8)

    monkeypatch.setattr(traced_scenes, "trace_block", empty_block)
    monkeypatch.setattr(traced_scenes.os, "cpu_count", lambda: 2)
    most = 0
    for written, row in enumerate(traced_scenes.traced_rows(103, seed=1, size=4)):
        assert row[0] == written // 5, "the blocks are out of order"
        most = max(most, len(asked) - written // 5)
    assert sorted(asked) == list(range(21))
    assert most <= 5  # one that is written, and two for each thread


def test_scenes_are_rendered_once_and_mapped_into_memory(tmp_path, small_blocks, monkeypatch):
    first = load_traced_scenes(3, seed=1, size=16, folder=tmp_path)
    load_traced_scenes.cache_clear()
    monkeypatch.setattr(traced_scenes, "trace_block", None)
    again = load_traced_scenes(3, seed=1, size=16, folder=tmp_path)
    assert isinstance(again.images, np.memmap)
    assert np.array_equal(again.images, first.images)
    assert [path.name for path in tmp_path.iterdir()] == ["scenes-1-seed1-3-16.npy"]


def test_an_interrupted_rendering_leaves_nothing_behind(tmp_path, small_blocks, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(traced_scenes, "photographs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_traced_scenes(2, seed=9, size=16, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def in_the_picture(layouts, size: int) -> np.ndarray:
    """Row and column of every object's centre, by the camera's geometry alone."""
    solids, cameras, _ = ray_tracer_inputs(layouts)
    away = (solids.centre - cameras.position[:, None]).double().numpy()
    ahead = -layouts.cameras / np.linalg.norm(layouts.cameras, axis=1, keepdims=True)
    right = np.cross(ahead, [0, 0, 1])
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    up = np.cross(right, ahead)
    depth, across, above = (np.einsum("bkx,bx->bk", away, axis) for axis in (ahead, right, up))
    reach = np.tan(np.deg2rad(49.1) / 2)
    column = (across / depth / reach + 1) / 2 * size
    row = (1 - VIEW_ASPECT * above / depth / reach) / 2 * size
    return np.stack([row, column], axis=-1)


def test_the_pixel_at_an_object_has_its_colour(monkeypatch):
    monkeypatch.setattr(traced_scenes, "BLOCK", 25)
    size, generator = 64, np.random.default_rng([4, 0])
    layouts = visible_layouts(25, generator)
    images, objects = trace_block(0, seed=4, size=size)
    pixels = in_the_picture(layouts, size)
    right = total = 0
    for scene in range(25):
        depth = np.linalg.norm(layouts.cameras[scene, :2] - layouts.places[scene], axis=1)
        count = layouts.num_objects[scene]
        assert objects[scene, :, 0].sum() == count
        nearest = int(depth[:count].argmin())  # nothing stands before it
        row, column = pixels[scene, nearest].astype(int)
        if not (0 <= row < size and 0 <= column < size):
            continue
        seen = images[scene, row, column].float()
        likeness = torch.nn.functional.cosine_similarity(
            seen[None] - seen.min() * 0.5, COLOURS - 0.5 * COLOURS.amin(1, keepdim=True)
        )
        total += 1
        right += int(likeness.argmax()) == int(objects[scene, nearest, 6])
    assert total > 15
    assert right >= 0.8 * total


def test_metal_differs_from_rubber_by_a_highlight():
    generator = np.random.default_rng(0)
    layouts = draw_layouts(20, generator)
    rubber, metal = layouts.properties.copy(), layouts.properties.copy()
    rubber[..., 1], metal[..., 1] = 0, 1
    lamps = traced_scenes.LAMPS.expand(20, -1, -1)
    pictures = [traced_scenes.photographs(layouts._replace(properties=some), lamps, 32) for some in (rubber, metal)]
    changed = (pictures[1] - pictures[0]).abs().amax(dim=1) > 0.08
    assert 0.02 < float(changed.float().mean()) < 0.5


def test_properties_are_described_in_words():
    assert describe_object([0, 0, 0, 0]) == "small gray rubber cube"


def test_no_scenes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="num_scenes must be at least 1; got 0"):
        load_traced_scenes(0, seed=1, size=16, folder=tmp_path)
