"""Splits, crops, patches and augmentation of photographs."""

import re
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from picaset.lab.data.crops import (
    CROP,
    Augmentation,
    augment,
    centre_crops,
    crops_at,
    erase,
    normalize_images,
    patches,
    random_shifts,
    warp,
)
from picaset.lab.data.views import LABELS, Views, degrees_from_training

SHIFTS = torch.tensor([[0, 0], [-8, 8], [3, -5]])


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def images(generator) -> torch.Tensor:
    return torch.randint(0, 256, (3, 2, 48, 48), dtype=torch.uint8, generator=generator)


def whole_grid() -> Views:
    rows = torch.tensor(list(product(range(5), [4], range(9), range(0, 36, 2), [0])))
    return Views(torch.zeros(len(rows), 2, 48, 48, dtype=torch.uint8), *rows.unbind(dim=1))


def test_training_has_a_third_of_the_viewpoints():
    views = whole_grid()
    for split, label in (("azimuth", views.azimuth), ("elevation", views.elevation)):
        familiar = views.familiar(split)
        assert 3 * int(familiar.sum()) == len(views)
        assert not set(label[familiar].tolist()) & set(label[~familiar].tolist())


def test_viewpoints_of_training_are_those_at_no_distance():
    views = whole_grid()
    for split, label in (("azimuth", views.azimuth), ("elevation", views.elevation)):
        distances = torch.tensor([degrees_from_training(split, int(value)) for value in label])
        assert torch.equal(distances == 0, views.familiar(split))
    assert max(degrees_from_training("azimuth", azimuth) for azimuth in range(0, 36, 2)) == 120


def test_a_choice_of_views_keeps_images_and_labels_together():
    views = whole_grid()
    chosen = views.where(views.azimuth == 6)
    assert len(chosen) == 45
    assert set(chosen.azimuth.tolist()) == {6}
    assert all(len(getattr(chosen, name)) == 45 for name in LABELS)


def test_a_crop_is_the_middle_moved_by_whole_pixels(images):
    crops = crops_at(images, SHIFTS)
    assert torch.equal(crops[0], centre_crops(images)[0])
    assert torch.equal(crops[1], images[1, :, 0:32, 16:48])
    assert torch.equal(crops[2], images[2, :, 11:43, 3:35])


def test_a_crop_beyond_the_image_is_refused(images):
    with pytest.raises(ValueError, match="a crop can be moved by at most 8 pixels; got 9"):
        crops_at(images, SHIFTS - 1)


def test_shifts_reach_their_bounds_and_no_further(generator):
    assert set(random_shifts(500, most=2, generator=generator).flatten().tolist()) == {-2, -1, 0, 1, 2}


def test_every_image_is_normalised_by_itself(images):
    found = normalize_images(images)
    assert_close(found.mean(dim=(2, 3)), torch.zeros(3, 2), atol=1e-5, rtol=0)
    assert_close(found.square().mean(dim=(2, 3)), torch.ones(3, 2), atol=1e-3, rtol=0)
    assert torch.equal(normalize_images(torch.full((1, 1, 4, 4), 7.0)), torch.zeros(1, 1, 4, 4))


def test_patches_are_the_squares_of_the_image(images):
    crops = normalize_images(centre_crops(images))
    found = patches(crops)
    assert found.shape == (3, 64, 32)
    assert torch.equal(found[1, 8 * 2 + 5], crops[1, :, 8:12, 20:24].flatten())


def test_without_augmentation_a_random_crop_is_a_crop(images):
    found = augment(images, Augmentation(), generator=torch.Generator().manual_seed(3))
    shifts = random_shifts(3, most=8, generator=torch.Generator().manual_seed(3))
    assert torch.equal(found, normalize_images(crops_at(images, shifts)))


def test_an_interpolated_crop_that_is_only_moved_is_the_crop(images, generator):
    found = warp(images.float(), SHIFTS, Augmentation(), generator)
    assert_close(found, crops_at(images, SHIFTS).float(), atol=1e-2, rtol=0)


def test_every_second_image_is_mirrored(images, generator):
    many = images[:1].expand(200, -1, -1, -1)
    found = warp(many.float(), torch.zeros(200, 2).long(), Augmentation(mirror=True), generator)
    crop = centre_crops(images)[:1].float()
    plain = torch.isclose(found, crop, atol=1e-2).flatten(1).all(dim=1)
    mirrored = torch.isclose(found, crop.flip(3), atol=1e-2).flatten(1).all(dim=1)
    assert bool((plain ^ mirrored).all())
    assert 70 < int(plain.sum()) < 130


def test_a_stretched_image_is_higher_or_wider_and_as_large(generator):
    disc = torch.zeros(1, 1, 48, 48)
    places = torch.arange(48) - 23.5
    disc[0, 0] = (places[:, None].square() + places.square() < 8**2).float()
    found = warp(disc.expand(50, -1, -1, -1), torch.zeros(50, 2).long(), Augmentation(stretch=0.6), generator)[:, 0]
    assert_close(found.sum(dim=(1, 2)), disc.sum().expand(50), rtol=0.03, atol=0)
    ratio = (found.amax(dim=2).sum(dim=1) / found.amax(dim=1).sum(dim=1)).log()  # height to width
    assert float(ratio.min()) < -0.4
    assert float(ratio.max()) > 0.4
    assert float(ratio.abs().max()) < 0.75


def test_no_more_than_its_share_is_erased(generator):
    found = erase(torch.ones(400, 1, CROP, CROP), 0.3, generator)
    gone = (found == 0).float().mean(dim=(1, 2, 3))
    assert 0.25 < float(gone.max()) <= 0.34
    assert float(gone.mean()) > 0.05


EVERYTHING = Augmentation(turn=10.0, scale=0.2, stretch=0.3, mirror=True, contrast=0.5, noise=0.1, erase=0.3)


def test_augmentation_is_the_same_for_the_same_seed_and_finite(images):
    first, again, other = (
        augment(images, EVERYTHING, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert bool(first.isfinite().all())


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"turn": -1.0}, "turn must not be negative; got -1.0"), ({"erase": 1.0}, "erase must be below 1; got 1.0")],
)
def test_an_impossible_augmentation_is_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Augmentation(**settings)
