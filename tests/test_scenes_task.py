"""The scenes experiment: its batches, its scores, its runs, and what is drawn of one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.scenes import to_vectors
from picaset.lab.data.traced_scenes import load_traced_scenes, scene_cameras
from picaset.lab.experiments import experiment
from picaset.lab.experiments.scenes import ROWS, SCENES, VARIANTS
from picaset.lab.reports import scenes as tables
from picaset.lab.reports.look import look
from picaset.lab.reports.scenes import combine_predictions, mark_objects
from picaset.lab.tasks.scenes import SEEDS, SceneObjects
from picaset.lab.training.loop import resume, start
from tests.clevr_files import write_clevr

SMALL = experiment("scenes-pb3", profile="smoke").task


def batch_of(task: SceneObjects, step: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    return task.batch(step, seed=seed, num_examples=4, progress=0.0)


def test_a_step_sees_the_same_scenes_whenever_it_is_asked_for():
    first, again = batch_of(SMALL, 5), batch_of(SMALL, 5)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not torch.equal(first[0], batch_of(SMALL, 6)[0])
    assert not torch.equal(first[0], batch_of(SMALL, 5, seed=1)[0])


def test_an_epoch_shows_each_scene_once():
    shown = [image.numpy().tobytes() for step in range(4) for image in batch_of(SMALL, step)[0]]
    assert len(set(shown)) == 16


def test_a_batch_is_images_with_the_vectors_of_their_objects():
    images, targets = batch_of(SMALL, 0)
    assert images.dtype is torch.uint8
    assert images.shape == (4, 3, 32, 32)
    scenes = SMALL.scenes("train")
    numbers = [next(i for i in range(16) if np.array_equal(scenes.images[i], image.movedim(0, -1))) for image in images]
    parts = (torch.as_tensor(part[numbers]) for part in (scenes.present, scenes.coordinates, scenes.properties))
    assert torch.equal(targets, to_vectors(*parts))


def test_no_scene_is_in_two_parts():
    seen = [{image.tobytes() for image in SMALL.scenes(part).images} for part in ("train", "validation", "test")]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 16 + 10 + 12


@pytest.fixture
def small_clevr(tmp_path, monkeypatch):
    write_clevr(tmp_path / "data/clevr", 16, 5)
    monkeypatch.setenv("PICASET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path / "cache"))


def test_what_is_scored_while_training_is_held_out_of_clevr_s_training_scenes(small_clevr):
    task = replace(SMALL, data="clevr")
    assert (task.numbers("train"), task.numbers("validation"), task.numbers("test")) == (
        range(6), range(6, 16), range(5)
    )  # fmt: skip
    with pytest.raises(ValueError, match="CLEVR must have more than 16 training scenes; got 16"):
        replace(task, num_scored_scenes=16).numbers("train")


def test_the_real_layout_trains_like_the_stand_in_and_says_which_it_was(small_clevr, tmp_path):
    chosen = experiment("scenes-clevr-pb3", profile="smoke")
    result = start(chosen, tmp_path / "run", silent=True, accelerator="cpu")
    assert result["data"] == "CLEVR, 5-image subset, 32 x 32 pixels; 6 for training, 5 for test"
    assert json.loads((tmp_path / "run/environment.json").read_text())["data"] == result["data"]
    figures = look(tmp_path / "run", tmp_path / "figures")
    assert len(figures) == 2


def test_without_the_real_data_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    with pytest.raises(ValueError, match="set PICASET_DATA to the folder that holds clevr/"):
        start(experiment("scenes-clevr-pb3", profile="smoke"), tmp_path / "run", silent=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["scenes-slot-attention", "scenes-idspn"])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(name, tmp_path, monkeypatch):
    chosen = experiment(name, profile="smoke")
    chosen = replace(chosen, training=replace(chosen.training, steps=4, checkpoint_every=2))
    whole = start(chosen, tmp_path / "whole", silent=True, accelerator="cpu")
    asked = SceneObjects.batch

    def stopped(self, step, **given):
        if step == 3:
            raise RuntimeError("the power went")
        return asked(self, step, **given)

    monkeypatch.setattr(SceneObjects, "batch", stopped)
    with pytest.raises(RuntimeError, match="the power went"):
        start(chosen, tmp_path / "run", silent=True, accelerator="cpu")
    monkeypatch.undo()
    again = resume(tmp_path / "run", silent=True, accelerator="cpu")
    for timed in ("seconds", "milliseconds_per_image"):
        del whole[timed], again[timed]
    assert again == whole


def test_a_network_that_knows_the_objects_scores_one():
    class Knows(torch.nn.Linear):
        def forward(self, images, num_steps=None):
            known, targets = SMALL.whole("validation")
            numbers = [next(i for i, one in enumerate(known) if torch.equal(one, image)) for image in images]
            return targets[numbers]

    found = SMALL.score(Knows(1, 1))
    assert found["score"] == pytest.approx(1.0)
    assert set(found) == {"score", "ap_inf", "ap_1", "ap_0.5", "ap_0.25", "ap_0.125"}


def test_every_row_of_the_table_is_an_experiment_on_both_data_sets():
    for name in ROWS:
        assert {f"scenes-{name}", f"scenes-clevr-{name}"} <= set(SCENES)
    assert {"scenes-pb3-reweighted", "scenes-clevr-slot-attention-likelihood"} <= set(SCENES)
    assert {experiment(name).task.objective for name in SCENES} == {"published", "reweighted", "likelihood"}
    assert set(tables.NAMES) == set(ROWS) | set(VARIANTS)
    published = experiment("scenes-slot-attention", profile="paper")
    assert (published.training.learning_rate, published.training.batch_size) == (4e-4, 512)
    assert (published.training.steps, published.training.warmup_steps) == (150_000, 1000)
    assert (published.task.network["stem"], published.task.image_size) == ("full", 128)


def test_all_rows_have_the_same_budget():
    budgets = {
        (found.training.steps, found.training.batch_size, found.task.num_scenes)
        for found in (experiment(name, profile="quick") for name in SCENES)
    }
    assert len(budgets) == 1


@pytest.mark.parametrize("name", ["num_scenes", "num_test_scenes", "num_scored_scenes"])
def test_sizes_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        SceneObjects(**{name: 0})


# Figures


class Picture:
    """Remembers what is drawn."""

    def __init__(self):
        self.marks = []

    def plot(self, x, y, *, marker, **_):
        self.marks.append((marker, x / 1.5, y))

    def annotate(self, *_, **__):
        pass


def test_what_is_found_missed_and_invented_is_marked_where_it_is():
    scenes = load_traced_scenes(2, seed=SEEDS["test"], size=32, folder=cache())
    parts = (torch.as_tensor(part) for part in (scenes.present, scenes.coordinates, scenes.properties))
    vectors = to_vectors(*parts)
    count = int(scenes.present[0].sum())
    vectors[0, 0, 0] = 0.0  # the first object is missed,
    vectors[0, 1, 8:18] = vectors[0, 1, 8:18].roll(1)  # the second has another material or colour
    shown = combine_predictions(SMALL, {"predicted": vectors.tolist(), "attention": None})
    picture = Picture()
    lines = mark_objects(shown, 0, picture)
    marks = [mark for mark, _, _ in picture.marks]
    assert (marks.count("o"), marks.count("X"), marks.count("s")) == (count - 2, 1, 2)
    assert sum("(missed)" in words for _, _, words in lines) == 2
    assert sum("(wrong)" in words for _, _, words in lines) == 1
    assert all(0 <= x <= 1 and 0 <= y <= 1 for _, x, y in picture.marks)
    assert scene_cameras(2, seed=SEEDS["test"]).position.shape == (2, 3)


def test_an_image_is_drawn_as_wide_as_it_was(small_clevr, tmp_path):
    task, kept = replace(SMALL, data="clevr"), {"predicted": torch.zeros(2, 10, 19).tolist(), "attention": None}
    before = combine_predictions(task, kept)
    Image.new("RGB", (160, 120)).save(tmp_path / "data/clevr/images/val/CLEVR_val_000001.png")
    read_clevr.cache_clear()
    after = combine_predictions(task, kept)
    assert [after.extent(scene) for scene in range(2)] == [(0, 1.5, 1, 0), (0, pytest.approx(4 / 3), 1, 0)]
    # The camera sees as much from left to right, and so more from top to bottom of what is less wide.
    assert torch.equal(after.true_pixels[..., 0], before.true_pixels[..., 0])
    down = (before.true_pixels[..., 1] - 0.5) * torch.tensor([[1.0], [(4 / 3) / 1.5]])
    torch.testing.assert_close(after.true_pixels[..., 1] - 0.5, down)


def cache():
    from picaset.lab.data.folders import cache_folder

    return cache_folder()
