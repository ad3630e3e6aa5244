"""The odd-one-out experiment: its batches, its loss, its scores."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.testing import assert_close

from picaset.lab.experiments import experiment
from picaset.lab.experiments.odd_one_out import ODD_ONE_OUT, ROWS
from picaset.lab.tasks.odd_one_out import NETWORK, OddOneOut, detection_scores, odd_one_out_loss
from picaset.lab.training.loop import resume, start
from tests.celeba_files import write_celeba

SMALL = OddOneOut(
    network=NETWORK.replace(dim=8, num_heads=2), num_faces=320, num_fixed_sets=0, drawn_per_album=2, sets_per_album=5,
    num_test_sets=12, num_scored_sets=10,
)  # fmt: skip


def batch_of(task: OddOneOut, step: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    return task.batch(step, seed=seed, num_examples=3, progress=0.0)


FIXED = replace(SMALL, num_fixed_sets=6, drawn_per_album=1, sets_per_album=1)


@pytest.mark.parametrize("task", [SMALL, replace(SMALL, shake=True), FIXED])
def test_a_step_sees_the_same_sets_whenever_it_is_asked_for(task):
    first, again = batch_of(task, 5), batch_of(task, 5)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not torch.equal(first[0], batch_of(task, 6)[0])
    assert not torch.equal(first[0], batch_of(task, 5, seed=1)[0])


def test_a_batch_is_albums_of_bytes_with_their_sets():
    images, members, odd = batch_of(SMALL, 0)
    assert images.shape == (3, 16, 3, 64, 64)
    assert images.dtype is torch.uint8
    assert members.shape == (3, 5, 8)
    assert odd.shape == (3, 5)


def test_an_epoch_of_fixed_sets_shows_each_once_in_an_order_of_its_own():
    def shown(steps: range) -> list[bytes]:
        return [album.numpy().tobytes() for step in steps for album in batch_of(FIXED, step)[0]]

    first, second = shown(range(2)), shown(range(2, 4))
    assert len(set(first)) == 6
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("part", ["train", "test"])
def test_training_never_sees_a_test_image(part):
    faces = SMALL.faces()
    held = {faces.images[index].tobytes() for index in faces.of_part(part)}
    images = np.moveaxis(batch_of(SMALL, 0)[0].flatten(0, 1).numpy(), 1, -1)
    assert all((image.tobytes() in held) == (part == "train") for image in images)


def test_the_loss_is_the_cross_entropy_over_the_elements():
    scores, odd = torch.randn(4, 6), torch.tensor([0, 5, 2, 2])
    expected = -scores.log_softmax(dim=1)[torch.arange(4), odd].mean()
    assert_close(odd_one_out_loss(scores, odd), expected)


def test_the_authors_loss_is_a_softmax_followed_by_a_binary_loss_with_another_sigmoid():
    scores, odd = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 5, 2, 2])
    twice = torch.sigmoid(scores.softmax(dim=1))
    target = torch.zeros(4, 6, dtype=torch.float64)
    target[torch.arange(4), odd] = 1
    expected = -(target * twice.log() + (1 - target) * (1 - twice).log()).mean()
    assert_close(odd_one_out_loss(scores, odd, loss="authors"), expected)


def test_the_authors_loss_cannot_fall_below_what_two_squashings_leave():
    certain = torch.full((1, 8), -100.0)
    certain[0, 3] = 100.0
    least = (math.log(1 + math.exp(-1)) + 7 * math.log(2)) / 8
    assert float(odd_one_out_loss(certain, torch.tensor([3]), loss="authors")) == pytest.approx(least)


def test_the_authors_loss_hardly_pulls_at_a_set_that_is_surely_wrong():
    def pull(loss: str) -> float:
        scores = torch.tensor([[12.0, 0.0, 0.0]], requires_grad=True)
        odd_one_out_loss(scores, torch.tensor([1]), loss=loss).backward()
        return float(scores.grad.abs().max())

    assert pull("authors") < 1e-3 < 0.9 < pull("elements")


@pytest.mark.as_installed
def test_an_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="loss must be one of 'elements', 'authors'; got 'hinge'"):
        odd_one_out_loss(torch.zeros(1, 3), torch.tensor([0]), loss="hinge")


def test_areas_are_those_of_scikit_learn_over_all_elements_together():
    generator = torch.Generator().manual_seed(0)
    scores, odd = torch.rand(50, 7, generator=generator), torch.randint(7, (50,), generator=generator)
    truth = torch.nn.functional.one_hot(odd, 7).flatten()
    found = detection_scores(scores, odd)
    assert found["auroc"] == pytest.approx(roc_auc_score(truth, scores.flatten()), abs=1e-5)
    assert found["aupr"] == pytest.approx(average_precision_score(truth, scores.flatten()), abs=1e-5)


def test_a_perfect_network_scores_one_and_random_guessing_what_chance_gives():
    odd = torch.arange(4000) % 8
    perfect = torch.nn.functional.one_hot(odd, 8).float()
    assert detection_scores(perfect, odd) == {"auroc": 1.0, "aupr": 1.0, "top1": 1.0}
    guessed = detection_scores(torch.rand(4000, 8, generator=torch.Generator().manual_seed(0)), odd)
    assert guessed == pytest.approx({"auroc": 0.5, "aupr": 0.125, "top1": 0.125}, abs=0.02)


def test_an_evaluation_has_the_table_every_size_and_what_the_figures_show():
    found = SMALL.evaluate(SMALL.build_network().eval())
    json.dumps(found)
    assert found["data"] == "320 drawn faces"
    assert found["test"].keys() == {"num_sets", "auroc", "aupr", "top1"}
    assert {"auroc", "aupr", "top1"} == found["random_guessing"].keys()
    sizes = [row["set_size"] for row in found["by_size"]]
    assert sizes[:4] == [3, 4, 6, 8]
    assert 64 not in sizes  # of 40 test images
    shown = found["shown"]
    assert len(shown["members"]) == len(shown["odd"]) == len(shown["scores"]) == len(shown["attributes"]) == 12
    faces = SMALL.faces()
    for members, odd, pair in zip(shown["members"], shown["odd"], shown["attributes"], strict=True):
        assert (faces.parts[members] == 2).all()
        assert not faces.attributes[members[odd]][[faces.names.index(name) for name in pair]].any()


def test_scores_from_remembered_vectors_are_those_of_the_images():
    network = SMALL.build_network().eval()
    sets = SMALL.sets("test", 3)
    scores, _ = SMALL.scored(network, SMALL.vectors(network, "test"), sets)
    images = torch.as_tensor(SMALL.faces().images[sets.members]).movedim(-1, -3)
    assert_close(scores, network(images).softmax(dim=1))


def test_training_learns_the_sets_of_one_batch():
    torch.manual_seed(0)
    network = (task := replace(SMALL, network=NETWORK.replace(dim=32, num_heads=2))).build_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    batch, chance, loss = batch_of(task, 0), math.log(8), math.inf
    for _ in range(200):
        optimizer.zero_grad()
        (total := task.loss(network, batch)).backward()
        optimizer.step()
        if (loss := total.item()) < chance / 2:
            break
    assert loss < chance / 2


@pytest.fixture
def small_celeba(tmp_path, monkeypatch):
    write_celeba(tmp_path / "data/celeba", 320)
    monkeypatch.setenv("PICASET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path / "cache"))


def test_the_real_layout_trains_like_the_stand_in_and_says_which_it_was(small_celeba, tmp_path):
    chosen = experiment("odd-one-out-celeba-sa-pb", profile="smoke")
    result = start(chosen, tmp_path / "run", silent=True, accelerator="cpu")
    assert result["data"] == "CelebA, 320-image subset"
    described = json.loads((tmp_path / "run/environment.json").read_text())["data"]
    assert described == "CelebA, 320-image subset; fresh training sets and 20 test sets of 8"


def test_without_the_real_data_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    with pytest.raises(ValueError, match="set PICASET_DATA to the folder that holds celeba/"):
        start(experiment("odd-one-out-celeba-sa-pb", profile="smoke"), tmp_path / "run", silent=True)
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_stopped_sees_the_same_sets_as_one_that_was_not(tmp_path, monkeypatch):
    chosen = experiment("odd-one-out-sa-gpb", profile="smoke")
    chosen = replace(chosen, training=replace(chosen.training, steps=6, checkpoint_every=3))
    whole = start(chosen, tmp_path / "whole", silent=True, accelerator="cpu")
    asked = OddOneOut.batch

    def stopped(self, step, **given):
        if step == 5:
            raise RuntimeError("the power went")
        return asked(self, step, **given)

    monkeypatch.setattr(OddOneOut, "batch", stopped)
    with pytest.raises(RuntimeError, match="the power went"):
        start(chosen, tmp_path / "run", silent=True, accelerator="cpu")
    monkeypatch.undo()
    again = resume(tmp_path / "run", silent=True, accelerator="cpu")
    for timed in ("seconds", "milliseconds_per_set"):
        del whole[timed], again[timed]
    assert again == whole


def test_every_row_of_the_table_is_an_experiment_on_both_data_sets():
    for name in ROWS:
        assert {f"odd-one-out-{name}", f"odd-one-out-celeba-{name}"} <= set(ODD_ONE_OUT)
    assert experiment("odd-one-out-celeba-sa-pb", profile="paper").task.network["stem"] == "nine"
    published = experiment("odd-one-out-sa-gpb", profile="paper")
    assert (published.training.learning_rate, published.training.batch_size) == (1e-5, 8)
    assert (published.task.num_fixed_sets, published.task.num_test_sets, published.task.set_size) == (800, 200, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_faces": 0}, "num_faces must be at least 1; got 0"),
        ({"sets_per_album": 1, "drawn_per_album": 2}, "sets_per_album must be at least drawn_per_album, 2; got 1"),
        (
            {"num_fixed_sets": 800},
            "sets_per_album must be 1 with num_fixed_sets, because fixed sets share no images; got .* and 800",
        ),
        ({"set_size": 2}, "set_size must be from 3 to 64; got 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)
