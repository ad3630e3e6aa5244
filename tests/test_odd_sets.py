"""Faces, drawn or real, and sets of them with an odd one."""

import numpy as np
import pytest

from picaset.lab.data.drawn_faces import ATTRIBUTES, NOT_WHEN_BALD, Portraits, draw_faces
from picaset.lab.data.face_sets import (
    PARTS,
    album_from_sets,
    augment_faces,
    draw_album,
    draw_odd_sets,
    fixed_sets,
    usable_pairs,
)

FACES = draw_faces(320, seed=3)
every_part = pytest.mark.parametrize("part", PARTS)


def test_the_same_seed_draws_the_same_faces_and_another_does_not():
    draw_faces.cache_clear()
    again = draw_faces(320, seed=3)
    assert np.array_equal(again.images, FACES.images)
    assert np.array_equal(again.attributes, FACES.attributes)
    assert not np.array_equal(draw_faces(320, seed=4).images, FACES.images)


def test_more_faces_begin_with_the_same_pictures_of_the_same_attributes():
    has = np.zeros((70, len(ATTRIBUTES)), dtype=bool)
    assert np.array_equal(Portraits(has[:64], 3, 0).draw(), Portraits(has[:64], 3, 0).draw())
    assert not np.array_equal(Portraits(has[:6], 3, 0).draw(), Portraits(has[:6], 3, 64).draw())


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_can_be_seen(name: str):
    # The same faces, everything else equal, with and without: enough pixels change by enough.
    without = np.zeros((24, len(ATTRIBUTES)), dtype=bool)
    having = without.copy()
    having[:, ATTRIBUTES.index(name)] = True
    before, after = (Portraits(has, 5, 0).draw().astype(int) for has in (without, having))
    changed = (np.abs(after - before).max(axis=3) > 40).sum(axis=(1, 2))
    assert (changed >= 8).all(), changed


def test_every_attribute_is_neither_rare_nor_usual():
    shares = FACES.attributes.mean(axis=0)
    assert (shares > 0.1).all()
    assert (shares < 0.6).all()
    assert len(FACES.names) >= 12


def test_a_bald_head_has_no_hair_and_no_hat_that_would_hide_it():
    for name in NOT_WHEN_BALD:
        assert not FACES.attributes[:, [ATTRIBUTES.index("Bald"), ATTRIBUTES.index(name)]].all(axis=1).any()


def test_no_faces_at_all_are_refused():
    with pytest.raises(ValueError, match="num_faces must be at least 1; got 0"):
        draw_faces(0, seed=0)


@pytest.mark.parametrize("set_size", [3, 8, 13])
def test_all_but_one_have_both_attributes_and_one_has_neither(set_size: int):
    sets = draw_odd_sets(FACES.attributes, 50, set_size, generator=np.random.default_rng(0))
    assert sets.members.shape == (50, set_size)
    for members, odd, pair in zip(*sets, strict=True):
        has = FACES.attributes[members][:, pair]
        assert not has[odd].any()
        assert np.delete(has, odd, axis=0).all()
        assert len(set(members)) == set_size
    assert len({tuple(pair) for pair in sets.pairs}) > 10
    assert set(sets.odd) == set(range(set_size))


def test_pairs_have_enough_images():
    pairs = usable_pairs(FACES.attributes, 30)
    for first, second in pairs:
        assert first < second
        assert (FACES.attributes[:, first] & FACES.attributes[:, second]).sum() >= 29
    assert 0 < len(pairs) < len(usable_pairs(FACES.attributes, 8))


@pytest.mark.parametrize("set_size", [0, 2, 65])
def test_sets_too_small_or_too_large_are_refused(set_size: int):
    with pytest.raises(ValueError, match=f"A set must have from 3 to 64 images; got {set_size}"):
        usable_pairs(FACES.attributes, set_size)


def test_too_few_images_are_refused():
    with pytest.raises(ValueError, match="Sets of 64 need 63 images with two attributes and one with neither; no pair"):
        draw_odd_sets(FACES.attributes[:40], 1, 64, generator=np.random.default_rng(0))


@every_part
def test_fixed_sets_stay_the_same_and_keep_to_their_part(part):
    sets = fixed_sets(FACES, part, 20, 5)
    again = fixed_sets(FACES, part, 20, 5)
    assert all(np.array_equal(one, other) for one, other in zip(sets, again, strict=True))
    assert (FACES.parts[sets.members] == PARTS.index(part)).all()


def test_training_and_test_sets_share_no_image():
    train, test = (set(fixed_sets(FACES, part, 100, 5).members.flat) for part in ("train", "test"))
    assert not train & test


def test_an_album_has_each_image_once_and_its_sets_are_odd_sets():
    album = draw_album(FACES, "train", num_drawn=4, num_sets=20, set_size=6, generator=np.random.default_rng(1))
    assert album.images.shape == (24, 64, 64, 3)
    assert album.members.shape == (20, 6)
    known = {image.tobytes(): index for index, image in enumerate(FACES.images)}
    numbers = np.array([known[image.tobytes()] for image in album.images])
    assert len(set(numbers)) == 24
    assert (FACES.parts[numbers] == 0).all()
    for members, odd in zip(album.members, album.odd, strict=True):
        has = FACES.attributes[numbers[members]]
        shared = np.delete(has, odd, axis=0).all(axis=0) & ~has[odd]
        assert shared.sum() >= 2


def test_fixed_sets_have_images_of_their_own():
    sets = fixed_sets(FACES, "train", 3, 5)
    album = album_from_sets(FACES, sets)
    assert np.array_equal(album.images[album.members], FACES.images[sets.members])


def test_shaken_images_are_mirrored_and_moved_a_little():
    images = FACES.images[:40]
    moved = augment_faces(images, np.random.default_rng(0))
    assert moved.shape == images.shape
    assert not np.array_equal(moved, images)
    for before, after in zip(images, moved, strict=True):
        candidates = [
            np.roll(turned, (down, right), axis=(0, 1))[6:-6, 6:-6]
            for turned in (before, before[:, ::-1])
            for down in range(-4, 5)
            for right in range(-4, 5)
        ]
        assert any(np.array_equal(after[6:-6, 6:-6], candidate) for candidate in candidates)
