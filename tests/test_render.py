"""The ray tracer against geometry that can be done by hand, and the toys that it renders."""

import math
import re
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from picaset.lab.data.ray_tracer import (
    ABSENT,
    GROUND,
    KINDS,
    SKY,
    Background,
    Cameras,
    Lamps,
    Solids,
    blocked,
    nearest,
    project,
    rays,
    shade,
    to_pixels,
    trace_rays,
)
from picaset.lab.data.toys import GRIDS, Grid, build_toy, load_toys, render_toy, render_toys, rotation
from picaset.lab.data.views import LABELS, TRAINING_INSTANCES

SIZE = (33, 41)


def solids(*parts: tuple, scenes: int = 1) -> Solids:
    """Each part: kind, centre, half sizes, and turns about x, y and z."""
    count = len(parts)
    one = Solids(
        kind=torch.tensor([[KINDS.index(part[0]) for part in parts]]),
        centre=torch.tensor([[part[1] for part in parts]]).float(),
        turn=torch.stack([rotation(*(part[3] if len(part) > 3 else (0.0, 0.0, 0.0))) for part in parts])[None],
        half_size=torch.tensor([[part[2] for part in parts]]).float(),
        colour=torch.linspace(0.2, 0.9, 3 * count).reshape(1, count, 3),
        shine=torch.linspace(0.0, 0.5, count)[None],
    )
    return one.expand(scenes)


def camera(position=(0.0, -6.0, 3.0), target=(0.0, 0.0, 1.0), degrees=50.0) -> Cameras:
    return Cameras(torch.tensor([position]), torch.tensor([target]), torch.tensor([degrees]))


def render(solids, cameras, lamps, background, *, size, samples=2, stretch=1.0) -> torch.Tensor:
    points = trace_rays(solids, cameras, background, size=size, samples=samples, stretch=stretch)
    return to_pixels(shade(points, solids, lamps), size, samples)


LAMPS = Lamps(torch.tensor([[[3.0, -5.0, 8.0]]]), torch.tensor([[0.7]]), torch.tensor([0.3]))
BACKGROUND = Background(torch.full((1, 3), 0.8), torch.full((1, 3), 0.95))
BALL = ("ellipsoid", (0, 0, 1), (1, 1, 1))
SCENE = solids(
    BALL,
    ("box", (-1.5, 0.5, 0.6), (0.4, 0.5, 0.6), (0.0, 0.0, 30.0)),
    ("cylinder", (1.6, 0, 0.5), (0.3, 0.3, 0.5)),
    ("cone", (0.5, -1.5, 0.5), (0.4, 0.4, 0.5)),
)

HITS = {
    "box": (("box", (0, 0, 0), (1, 2, 3)), (5, 0, 0), (-1, 0, 0), 4.0, (1, 0, 0)),
    "turned box": (("box", (0, 0, 0), (1, 1, 1), (0, 0, 45)), (5, 0.1, 0), (-1, 0, 0), 3.6858, (0.7071, 0.7071, 0)),
    "ellipsoid": (("ellipsoid", (0, 0, 0), (3, 1, 1)), (5, 0, 0), (-1, 0, 0), 2.0, (1, 0, 0)),
    "its side": (("ellipsoid", (0, 0, 0), (3, 1, 1)), (0, 5, 0), (0, -1, 0), 4.0, (0, 1, 0)),
    "cylinder side": (("cylinder", (0, 0, 0), (2, 2, 1)), (5, 0, 0.5), (-1, 0, 0), 3.0, (1, 0, 0)),
    "cylinder end": (("cylinder", (0, 0, 0), (2, 2, 1)), (1.2, 0, 5), (0, 0, -1), 4.0, (0, 0, 1)),
    "lying cylinder": (("cylinder", (0, 0, 0), (1, 1, 2), (90.0, 0.0, 0.0)), (0, 5, 0), (0, -1, 0), 3.0, (0, 1, 0)),
    "cone side": (("cone", (0, 0, 0), (1, 1, 1)), (5, 0, 0), (-1, 0, 0), 4.5, (2 / 5**0.5, 0, 1 / 5**0.5)),
    "cone base": (("cone", (0, 0, 0), (1, 1, 1)), (0.3, 0, -5), (0, 0, 1), 4.0, (0, 0, -1)),
    "cone tip": (("cone", (0, 0, 0), (1, 1, 1)), (0.01, 0, 5), (0, 0, -1), 4.02, (2 / 5**0.5, 0, 1 / 5**0.5)),
}  # fmt: skip


@pytest.mark.parametrize(("part", "start", "direction", "distance", "normal"), HITS.values(), ids=HITS)
def test_a_ray_meets_a_solid_where_geometry_says(part, start, direction, distance, normal):
    found = nearest(solids(part), torch.tensor([start]).float(), torch.tensor([[direction]]).float())
    assert found.owner.item() == 0
    assert_close(found.distance[0, 0], torch.tensor(distance), atol=1e-3, rtol=0)
    assert_close(found.normal[0, 0], torch.tensor(normal).float(), atol=1e-3, rtol=0)


MISSES = {
    "beside a cylinder's end": (("cylinder", (0, 0, 0), (2, 2, 1)), (5, 0, 1.1), (-1, 0, 0)),
    "the other half of the double cone": (("cone", (0, 0, 0), (1, 1, 1)), (5, 0, 1.5), (-1, 0, 0)),
    "above a box": (("box", (0, 0, 0), (1, 1, 1)), (5, 0, 1.1), (-1, 0, 0)),
    "behind the start": (("ellipsoid", (0, 0, 0), (1, 1, 1)), (5, 0, 0), (1, 0, 0)),
}


@pytest.mark.parametrize(("part", "start", "direction"), MISSES.values(), ids=MISSES)
def test_a_ray_misses_what_it_does_not_meet(part, start, direction):
    found = nearest(solids(part), torch.tensor([start]).float(), torch.tensor([[direction]]).float())
    assert found.owner.item() == -1
    assert found.distance.item() == math.inf
    assert not found.normal.any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_hit_is_on_the_surface_and_faces_the_ray(kind):
    generator = torch.Generator().manual_seed(0)
    part = solids((kind, (0.3, -0.2, 0.5), (0.5, 0.8, 1.1), (20.0, -35.0, 70.0)))
    start = torch.tensor([[3.0, -4.0, 2.0]])
    direction = torch.nn.functional.normalize(
        part.centre[:, 0] - start + 0.5 * torch.randn(1, 4000, 3, generator=generator), dim=-1
    )
    found = nearest(part, start, direction)
    on = found.owner[0] == 0
    assert 100 < int(on.sum()) < 4000
    point = (
        (start + found.distance[0, on, None] * direction[0, on] - part.centre[0]) @ part.turn[0, 0] / part.half_size[0]
    )
    x, y, z = point.abs().unbind(dim=1)
    around = (x * x + y * y).sqrt()
    level = {
        "box": torch.maximum(torch.maximum(x, y), z),
        "ellipsoid": (x * x + y * y + z * z).sqrt(),
        "cylinder": torch.maximum(around, z),
        "cone": torch.maximum(around - (1 - point[:, 2]) / 2 + 1, -point[:, 2]),
    }[kind]
    assert_close(level, torch.ones_like(level), atol=1e-3, rtol=0)
    assert bool(((found.normal[0, on] * direction[0, on]).sum(dim=1) < 1e-3).all())


def test_the_silhouette_of_a_ball_is_the_disc_that_its_distance_gives():
    seen = trace_rays(solids(BALL), camera((0.0, -5.0, 1.0)), BACKGROUND, size=(200, 200), samples=1)
    share = float((seen.owner == 0).float().mean())
    radius = math.tan(math.asin(1 / 5)) / math.tan(math.radians(25))  # of the disc, where half the picture is 1
    assert share == pytest.approx(math.pi * radius**2 / 4, rel=0.01)


def test_rays_go_row_by_row_from_the_top_left_through_the_middle():
    found = rays(camera((0.0, -5.0, 0.0), (0.0, 0.0, 0.0)), size=(3, 5)).reshape(3, 5, 3)
    assert_close(found[1, 2], torch.tensor([0.0, 1.0, 0.0]))
    assert bool((found[0, :, 2] > 0).all())
    assert bool((found[:, 0, 0] < 0).all())
    assert_close(found.square().sum(dim=2), torch.ones(3, 5))


@pytest.mark.parametrize("stretch", [1.0, 1.5])
def test_a_point_is_in_the_picture_where_its_ray_goes(stretch):
    view = camera((2.0, -6.0, 4.0), (0.3, 0.0, 0.5))
    height, width = 5, 7
    points = view.position[:, None] + 3.0 * rays(view, size=(height, width), stretch=stretch)
    found = project(points, view, aspect=width / height, stretch=stretch)[0].reshape(height, width, 2)
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    assert_close(found, torch.stack([(right + 0.5) / width, (down + 0.5) / height], dim=-1))


def test_stretched_pixels_show_a_wide_picture_in_a_square():
    wide = render(SCENE, camera(), LAMPS, BACKGROUND, size=(24, 36), samples=2)
    square = render(SCENE, camera(), LAMPS, BACKGROUND, size=(24, 24), samples=6, stretch=1.5)
    assert float((torch.nn.functional.interpolate(wide, (24, 24), mode="area") - square).abs().mean()) < 0.02


def test_a_camera_that_looks_straight_down_sees():
    seen = trace_rays(solids(BALL), camera((0.0, 0.0, 6.0), (0.0, 0.0, 0.0)), BACKGROUND, size=SIZE)
    assert {0, GROUND} == set(seen.owner.unique().tolist())


def test_behind_the_horizon_is_the_sky():
    seen = trace_rays(solids(BALL), camera((0.0, -5.0, 1.0), degrees=90.0), BACKGROUND, size=SIZE, samples=1)
    owner = seen.owner.reshape(SIZE)
    assert set(owner[0].tolist()) == {SKY}
    assert set(owner[-1].tolist()) == {GROUND}
    image = render(solids(BALL), camera((0.0, -5.0, 1.0), degrees=90.0), LAMPS, BACKGROUND, size=SIZE)
    assert_close(image[0, :, 0, 0], BACKGROUND.sky[0])


def test_the_shadow_of_a_ball_lies_opposite_the_lamp():
    lamps = Lamps(torch.tensor([[[0.0, 0.0, 100.0]]]), torch.tensor([[0.7]]), torch.tensor([0.3]))
    above, ground = (
        solids(("ellipsoid", (0, 0, 3), (1, 1, 1))),
        torch.tensor([[0.0, 0.0, 0.0], [0.9, 0.0, 0.0], [1.2, 0.0, 0.0]]),
    )
    way = ground - lamps.position[0]
    far = way.square().sum(dim=1).sqrt()
    found = blocked(above, lamps.position[:, 0], (way / far[:, None])[None], limit=far[None])
    assert found.tolist() == [[True, True, False]]


def test_what_lies_behind_a_lamp_casts_no_shadow():
    start, direction = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[[0.0, 0.0, -1.0]]])
    for height, expected in ((4.0, False), (1.0, True), (-1.0, False)):
        part = solids(("box", (0, 0, height), (0.2, 0.2, 0.2)))
        assert blocked(part, start, direction, limit=torch.tensor([[2.0]])).item() is expected


def test_lit_and_shadowed_ground_have_the_light_that_reaches_them():
    lamps = Lamps(torch.tensor([[[0.0, 0.0, 1000.0]]]), torch.tensor([[0.5]]), torch.tensor([0.25]))
    scene = solids(("ellipsoid", (0, 0, 3), (1, 1, 1)))
    seen = trace_rays(scene, camera((0.0, -6.0, 1.5), (0.0, 0.0, 0.0)), BACKGROUND, size=(101, 101), samples=1)
    found = shade(seen, scene, lamps)[0, :, 0]
    on_ground = seen.owner[0] == GROUND
    distance = seen.point[0, :, :2].square().sum(dim=1).sqrt()
    in_shadow, lit = on_ground & (distance < 0.95), on_ground & (distance > 1.05) & (distance < 20)
    assert int(in_shadow.sum()) > 10
    assert_close(found[in_shadow], torch.full_like(found[in_shadow], 0.8 * 0.25))
    assert_close(found[lit], torch.full_like(found[lit], 0.8 * 0.75), atol=1e-3, rtol=0)


def test_a_shiny_ball_has_a_highlight_and_is_otherwise_the_dull_one():
    dull = solids(BALL)
    shiny = dull._replace(shine=torch.ones(1, 1))
    views = [render(ball, camera(), LAMPS, BACKGROUND, size=(64, 64)) for ball in (dull, shiny)]
    difference = views[1] - views[0]
    assert bool((difference >= 0).all())
    assert float(difference.amax()) > 0.3
    assert 0.0 < float((difference > 0.1).float().mean()) < 0.1


def test_the_order_of_the_solids_changes_nothing():
    order = torch.tensor([2, 0, 3, 1])
    shuffled = Solids(*(part[:, order] for part in SCENE))
    images = [render(scene, camera(), LAMPS, BACKGROUND, size=SIZE) for scene in (SCENE, shuffled)]
    assert_close(images[0], images[1], atol=1e-5, rtol=0)


def test_scenes_of_a_batch_are_rendered_as_each_by_itself():
    other = SCENE._replace(kind=torch.tensor([[3, 0, ABSENT, 1]]), centre=SCENE.centre + 0.1)
    views = [camera(), camera((4.0, -3.0, 5.0))]
    each = [
        render(scene, view, LAMPS, BACKGROUND, size=SIZE) for scene, view in zip((SCENE, other), views, strict=True)
    ]
    together = render(
        Solids(*(torch.cat(parts) for parts in zip(SCENE, other, strict=True))),
        Cameras(*(torch.cat(parts) for parts in zip(*views, strict=True))),
        Lamps(*(part.expand(2, *part.shape[1:]) for part in LAMPS)),
        Background(*(part.expand(2, -1) for part in BACKGROUND)),
        size=SIZE,
    )
    assert_close(together, torch.cat(each), atol=1e-5, rtol=0)


def test_a_pixel_is_the_mean_of_its_rays():
    coarse, fine = (
        render(SCENE, camera(), LAMPS, BACKGROUND, size=size, samples=samples)
        for size, samples in (((12, 16), 3), ((36, 48), 1))
    )
    assert_close(coarse, torch.nn.functional.avg_pool2d(fine, 3), atol=1e-5, rtol=0)


def test_turning_scene_lamps_and_camera_together_changes_nothing():
    turn = rotation(0.0, 0.0, 130.0)
    scene = SCENE._replace(centre=SCENE.centre @ turn.T, turn=turn @ SCENE.turn)
    view = camera()._replace(position=camera().position @ turn.T, target=camera().target @ turn.T)
    lamps = LAMPS._replace(position=LAMPS.position @ turn.T)
    before, after = (
        render(SCENE, camera(), LAMPS, BACKGROUND, size=SIZE),
        render(scene, view, lamps, BACKGROUND, size=SIZE),
    )
    assert float((after - before).abs().mean()) < 1e-3


def test_grey_is_one_colour_of_three():
    grey = SCENE._replace(colour=SCENE.colour[..., :1])
    found = render(grey, camera(), LAMPS, Background(*(part[:, :1] for part in BACKGROUND)), size=SIZE)
    assert torch.equal(found, render(SCENE, camera(), LAMPS, BACKGROUND, size=SIZE)[:, :1])


# Toys

SMALL = Grid((4,), (0,), elevations=(1,), azimuths=(0, 18), lightings=(0, 3))


@pytest.mark.parametrize("category", range(5))
def test_instances_of_a_family_differ_and_stay_the_same(category):
    first, again, other = (build_toy(category, instance, seed=0) for instance in (4, 4, 5))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert first.centre.shape != other.centre.shape or not torch.equal(first.centre, other.centre)
    for toy in (first, other):
        assert bool((toy.half_size > 0).all())
        lowest = (toy.centre[..., 2] - (toy.turn[..., 2, :].abs() * toy.half_size).sum(dim=-1)).amin()
        assert -0.15 < float(lowest) < 0.15


@pytest.mark.parametrize("category", range(5))
def test_toys_are_in_the_picture_and_not_at_its_edge(category):
    grid = Grid(elevations=(0, 8), azimuths=(0, 10), lightings=(4,))
    for instance in (0, 4, 7):
        images = render_toy(category, instance, grid, seed=2021).float()
        table = images[..., :4, :4].mean()
        dark = (images < 0.8 * table).float()
        assert 0.02 < float(dark.mean()) < 0.5, instance
        assert float(dark[..., [0, -1], :].mean()) < 0.1, instance


def test_toys_have_every_viewpoint_of_their_grid_once():
    views = render_toys(SMALL, (4,))
    assert views.images.shape == (5 * 1 * 1 * 2 * 2, 2, 48, 48)
    rows = torch.stack([getattr(views, name) for name in LABELS], dim=1).tolist()
    assert rows == [list(row) for row in product(range(5), (4,), (1,), (0, 18), (0, 3))]


def test_the_two_cameras_see_nearly_the_same():
    views = render_toys(SMALL, (4,)).images.float()
    across = (views[:, 0] - views[:, 1]).abs().mean()
    assert 1.0 < float(across) < float((views[0::4] - views[2::4]).abs().mean())


def test_toys_are_rendered_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path))
    first = load_toys("tiny")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toys-1-tiny-test.npz", "toys-1-tiny-training.npz"]
    monkeypatch.setattr("picaset.lab.data.toys.render_toys", None)
    again = load_toys("tiny")
    assert all(torch.equal(one.images, two.images) for one, two in zip(first, again, strict=True))
    assert set(first[0].instance.tolist()) <= set(TRAINING_INSTANCES)


def test_an_interrupted_rendering_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("picaset.lab.data.views.np.savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_toys("tiny")
    assert list(tmp_path.iterdir()) == []


def test_a_grid_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=re.escape("size must be one of 'whole', 'small', 'tiny'; got 'huge'")):
        load_toys("huge")
    assert len(GRIDS["whole"].azimuths) == 18
