"""The task of novel viewpoints: what it trains on, what it shows, what it measures."""

import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from picaset.cli import main
from picaset.lab.data.crops import augment, centre_crops, normalize_images
from picaset.lab.experiments import experiment
from picaset.lab.experiments.viewpoints import ELEVATION_AUGMENTATION, ROWS, VIEW_CLASSIFIER, for_split, quick
from picaset.lab.networks.bag_classifier import BagClassifier
from picaset.lab.networks.image_stems import ConvolutionalStem
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoint_scores import Look, accuracies, examples, predict, spaced_indices
from picaset.lab.tasks.viewpoints import PB3, Viewpoints, batch_indices, objects
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import RunDirectory
from picaset.sets import SetBatch

TINY = Viewpoints(network=PB3.replace(dim=16, num_heads=2, num_inducing=4), data="toys-tiny", num_scored=10)


class Oracle(nn.Module):
    """Knows every image by heart."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, wrong: torch.Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.images, self.labels = normalize_images(images), labels.clone()
        if wrong is not None:
            self.labels[wrong] = (self.labels[wrong] + 1) % 5

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = torch.cdist(images.flatten(1), self.images.flatten(1)).argmin(dim=1)
        return 10.0 * nn.functional.one_hot(self.labels[found], 5).float()


@pytest.mark.parametrize("row", ROWS)
def test_a_step_sees_the_same_examples_whenever_it_is_asked_for(row):
    task = experiment(f"viewpoints-azimuth-{row}", profile="smoke").task
    first, again, other = (task.batch(step, seed=3, num_examples=7, progress=0.1) for step in (5, 5, 6))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    cameras = 2 if task.stereo else 1
    assert first[0].shape == ((7, 64, 16) if task.bag else (7, cameras, 32, 32))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_trained_alike_for_both_splits_but_ours_sees_images_stretched_for_elevations(row):
    azimuth, elevation = (experiment(f"viewpoints-{split}-{row}-toys") for split in ("azimuth", "elevation"))
    alike = replace(azimuth.task, split="elevation")
    if row.startswith("ours"):
        assert elevation.task == replace(alike, augmentation=ELEVATION_AUGMENTATION) != alike
    else:
        assert elevation.task == alike
    assert elevation.training == azimuth.training


@pytest.mark.parametrize("row", ROWS)
def test_on_photographs_ours_is_trained_longer_for_elevations_and_no_other_row_is(row):
    azimuth, elevation = (
        quick(replace(for_split(ROWS[row], split), data="small-norb"), 0)[1] for split in ("azimuth", "elevation")
    )
    longer = replace(azimuth, steps=5000, precision="bf16-mixed")
    assert elevation == (longer if row.startswith("ours") else azimuth)


def test_an_epoch_goes_through_all_examples_once():
    seen = torch.cat([batch_indices(step, seed=0, num_examples=4, total=10) for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))
    assert seen[:10].tolist() != seen[10:].tolist()


@pytest.mark.parametrize("split", ["azimuth", "elevation"])
def test_training_never_sees_a_novel_viewpoint_or_a_test_object(split, monkeypatch):
    training, test = objects("toys-tiny")
    familiar = training.where(training.familiar(split))
    seen = list[torch.Tensor]()

    def remembered(images, augmentation, *, generator):
        seen.append(images)
        return augment(images, augmentation, generator=generator)

    monkeypatch.setattr("picaset.lab.tasks.viewpoints.augment", remembered)
    task = replace(TINY, split=split, network=VIEW_CLASSIFIER.replace(channels_in=2, dim=16), stereo=True)
    task.batch(0, seed=0, num_examples=len(familiar), progress=0.0)
    assert {image.numpy().tobytes() for image in seen[0]} == {image.numpy().tobytes() for image in familiar.images}
    assert set(getattr(familiar, split).tolist()) < set(getattr(training, split).tolist())
    assert not set(training.instance.tolist()) & set(test.instance.tolist())


def test_a_toy_that_is_held_out_is_validated_on_and_never_trained_on(monkeypatch):
    training, _ = objects("toys-tiny")
    held_out = training.instance == training.instance.max()
    assert sorted(set(training.category[held_out].tolist())) == list(range(5))
    task = replace(TINY, hold_out_toy=True)
    assert set(task.training_views().instance.tolist()) == set(training.instance[~held_out].tolist())
    validated = list[int]()
    monkeypatch.setattr(Viewpoints, "accuracy", lambda self, network, views: validated.extend(views.instance) or 0.0)
    task.score(nn.Identity())
    assert set(map(int, validated)) == {int(training.instance.max())}


def test_centre_crops_are_the_same_at_every_epoch():
    task = replace(TINY, crops="centre")
    total = 2 * len(task.training_views())
    first, again = (task.batch(step, seed=0, num_examples=total, progress=0.0)[0] for step in (0, 1))
    rows = [{row.numpy().tobytes() for row in batch} for batch in (first, again)]
    assert rows[0] == rows[1]
    with pytest.raises(ValueError, match="centre crops are not augmented"):
        replace(task, augmentation=ELEVATION_AUGMENTATION)


def test_half_of_the_photographs_are_mirrored_the_same_at_every_epoch():
    task = replace(TINY, crops="centre-mirrored")
    total = 2 * len(task.training_views())
    plain, first, again = (
        {crop.numpy().tobytes() for crop in arm.batch(step, seed=0, num_examples=total, progress=0.0)[0]}
        for arm, step in ((replace(TINY, crops="centre"), 0), (task, 0), (task, 1))
    )
    assert first == again
    assert 0.4 < len(first - plain) / len(plain) < 0.6


def test_the_authors_constants_normalize_centre_crops_alike():
    images = torch.tensor([[[[0, 255], [51, 51]]]], dtype=torch.uint8)
    expected = (images / 255.0 - 0.485) / 0.229
    assert_close(normalize_images(images, "fixed"), expected)
    task = replace(TINY, crops="centre", normalization="fixed")
    views = task.training_views()
    shown = task.batch(0, seed=0, num_examples=2 * len(views), progress=0.0)[0]
    assert_close(shown.max(), normalize_images(centre_crops(views.images), "fixed").max())
    assert task.look().normalization == "fixed"
    with pytest.raises(ValueError, match="normalization='fixed' needs centre crops"):
        replace(TINY, normalization="fixed")


def test_the_paper_profile_of_a_bag_is_the_setting_of_the_authors_program():
    chosen = experiment("viewpoints-azimuth-pb2-toys", profile="paper")
    assert dict(chosen.task.network.arguments) == dict(
        dim_in=16, dim_out=5, dim=256, num_heads=8, num_inducing=1, num_steps=2, num_decoder_blocks=0, dropout=0.5
    )
    assert (chosen.task.crops, chosen.task.normalization) == ("centre-mirrored", "fixed")
    assert (chosen.training.steps, chosen.training.schedule) == (501 * (16_200 // 128), "tenth-half-way")
    transformer = experiment("viewpoints-azimuth-set-transformer-toys", profile="paper").task.network
    assert (transformer["num_steps"], transformer["num_decoder_blocks"]) == (1, 1)


def test_dropout_of_the_bag_classifier_is_for_training_alone():
    torch.manual_seed(0)
    network, bags = BagClassifier(16, 5, dim=8, num_heads=2), torch.randn(3, 7, 16)
    assert not torch.equal(network(bags), network(bags))
    network.eval()
    assert_close(network(SetBatch.from_list(list(bags))), network(bags))
    assert network.train()(SetBatch.from_list(list(bags))).shape == (3, 1, 5)


def test_two_cameras_are_two_examples_unless_they_are_a_pair():
    views = objects("toys-tiny")[1]
    images, labels = examples(views, stereo=False)
    assert images.shape == (2 * len(views), 1, 48, 48)
    assert torch.equal(images[5, 0], views.images[2, 1])
    assert int(labels[5]) == int(views.category[2])
    assert examples(views, stereo=True)[0] is views.images


def test_accuracies_are_the_shares_of_right_answers():
    views = objects("toys-tiny")[1]
    familiar = views.familiar("azimuth")
    wrong = torch.zeros(len(views), dtype=torch.bool)
    wrong[torch.where(~familiar)[0][:6]] = True
    oracle = Oracle(centre_crops(views.images), views.category, wrong)
    found = accuracies(oracle, views, "azimuth", Look(bag=False), stereo=True, most=0)
    novel = int((~familiar).sum())
    assert found["accuracy"]["familiar"] == 1.0
    assert found["accuracy"]["novel"] == pytest.approx(1 - 6 / novel)
    assert found["accuracy"]["novel_moved"] < 1.0
    assert found["examples"] == {"novel": novel, "familiar": len(views) - novel, "moved": len(views)}
    assert sum(map(sum, found["confusion"])) == novel
    assert sum(found["confusion"][k][k] for k in range(5)) == novel - 6
    assert [row["azimuth"] for row in found["by_viewpoint"]] == [0, 6, 12, 18, 24, 30]
    assert [row["degrees"] for row in found["by_viewpoint"]] == [0, 20, 80, 120, 60, 0]
    assert sum(row["accuracy"] * row["examples"] for row in found["by_viewpoint"]) == pytest.approx(len(views) - 6)
    json.dumps(found)


def test_of_many_examples_a_part_is_moved_each_with_its_own_answer(monkeypatch):
    monkeypatch.setattr("picaset.lab.tasks.viewpoint_scores.MAX_MOVED", 20)
    monkeypatch.setattr("picaset.lab.tasks.viewpoint_scores.MARGIN", 0)
    views = objects("toys-tiny")[1]
    oracle = Oracle(centre_crops(views.images), views.category, torch.zeros(len(views), dtype=torch.bool))
    found = accuracies(oracle, views, "azimuth", Look(bag=False), stereo=True, most=0)
    assert found["examples"]["moved"] == 20
    assert found["accuracy"]["novel_moved"] == found["accuracy"]["familiar_moved"] == 1.0


def test_test_crops_are_averaged():
    images = objects("toys-tiny")[1].images[:3]
    torch.manual_seed(0)
    network = ViewClassifier(5, channels_in=2, dim=16, num_heads=2).eval()
    middle = torch.zeros(3, 2, dtype=torch.long)
    together = predict(network, images, middle, Look(bag=False, num_crops=5, mirror=True))
    each = [
        predict(network, images, middle + torch.tensor(offset), Look(bag=False))
        for offset in Look(bag=False, num_crops=5).offsets()
    ]
    flipped = [
        predict(network, images.flip(3), middle + torch.tensor([down, -right]), Look(bag=False))
        for down, right in Look(bag=False, num_crops=5).offsets()
    ]
    assert_close(together, torch.stack([*each, *flipped]).mean(dim=0))
    assert [len(Look(bag=False, num_crops=count).offsets()) for count in (1, 5, 9)] == [1, 5, 9]


def test_a_bag_of_patches_has_no_order():
    network = TINY.build_network().eval()
    inputs, _, _ = TINY.batch(0, seed=0, num_examples=3, progress=0.0)
    assert_close(network(inputs), network(inputs[:, torch.randperm(64)]), atol=1e-5, rtol=1e-4)


def test_some_of_the_examples_are_spread_over_all():
    assert spaced_indices(10, 4).tolist() == [0, 2, 5, 7]
    assert spaced_indices(10, 0).tolist() == spaced_indices(10, 20).tolist() == list(range(10))


def test_places_are_left_out_in_training_alone():
    torch.manual_seed(0)
    network = ViewClassifier(5, dim=16, num_heads=2, patch_dropout=0.5)
    images = torch.randn(2, 1, 32, 32)
    assert not torch.equal(network(images), network(images))
    assert network.encode(images)[1] is not None
    network.eval()
    assert torch.equal(network(images), network(images))
    trace = network.trace(images)
    assert trace.attention.shape == (3, 2, 2, 4, 64)
    assert_close(trace.attention.sum(dim=-1), torch.ones(3, 2, 2, 4))


def test_a_run_of_ours_that_was_stopped_ends_with_the_same_bits(tmp_path):
    chosen = experiment("viewpoints-elevation-ours", profile="smoke")
    chosen = replace(chosen, training=replace(chosen.training, weight_decay=0.05, average=0.9))
    results = list[dict[str, object]]()
    for name, first in (("whole", None), ("stopped", 3)):
        if first is not None:  # as if killed after a checkpoint: the same run, begun anew from there
            start(chosen, tmp_path / name, silent=True, accelerator="cpu")
            (tmp_path / name / "result.json").unlink()
            for checkpoint in RunDirectory(tmp_path / name).checkpoints()[1:]:
                for file in checkpoint.iterdir():
                    file.unlink()
                checkpoint.rmdir()
            result = resume(tmp_path / name, silent=True, accelerator="cpu")
        else:
            result = start(chosen, tmp_path / name, silent=True, accelerator="cpu")
        results.append({key: result[key] for key in ("accuracy", "by_viewpoint", "confusion", "best_score")})
    assert results[0] == results[1]


def test_without_the_real_data_the_stand_in_is_used_and_named(monkeypatch):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    chosen = experiment("viewpoints-azimuth-pb3", profile="quick")
    assert chosen.name == "viewpoints-azimuth-pb3-toys"
    assert chosen == experiment("viewpoints-azimuth-pb3-toys", profile="quick")
    assert chosen.task.describe_data().startswith("stand-in for smallNORB")


def test_the_real_data_is_used_and_named_where_it_exists(monkeypatch, tmp_path):
    (tmp_path / "smallnorb").mkdir()
    monkeypatch.setenv("PICASET_DATA", str(tmp_path))
    chosen = experiment("viewpoints-azimuth-pb3", profile="paper")
    assert (chosen.name, chosen.task.data) == ("viewpoints-azimuth-pb3", "small-norb")
    assert chosen.task.describe_data() == "smallNORB, novel azimuths"
    assert experiment("viewpoints-azimuth-pb3-toys", profile="paper").task.data == "toys"


def test_a_folder_that_lacks_some_of_the_real_data_is_refused(monkeypatch, tmp_path, capsys):
    (tmp_path / "smallnorb").mkdir()
    arguments = ["train", "viewpoints-azimuth-pb3", "--data-root", str(tmp_path), "--out", str(tmp_path / "runs")]
    monkeypatch.setenv("PICASET_DATA", "")
    for _ in range(2):  # the first time leaves nothing behind that changes the second
        assert main(arguments) == 1
        assert "There is no smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat in" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_a_data_folder_that_is_none_is_refused_in_every_size(profile, monkeypatch, tmp_path):
    monkeypatch.setenv("PICASET_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="PICASET_DATA must be the folder that holds the data sets"):
        experiment("viewpoints-azimuth-pb3", profile=profile)


def test_real_data_that_is_not_there_is_asked_for(monkeypatch):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    with pytest.raises(ValueError, match=r"smallNORB is needed: set PICASET_DATA, or --data-root, to the folder"):
        objects("small-norb")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_test_crops": 4}, "num_test_crops must be 1, 5 or 9; got 4"),
        ({"num_tested": -1}, "num_tested must not be negative; got -1"),
        ({"num_scored": 0}, "num_scored must be at least 1; got 0"),
        ({"stereo": True}, "network must have dim_in=32 if stereo=True; got 16"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1; got 1.0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **settings)


def test_impossible_networks_are_refused():
    with pytest.raises(ValueError, match=r"patch_dropout must be at least 0 and below 1; got 1\.0"):
        ViewClassifier(5, dim=16, patch_dropout=1.0)
    with pytest.raises(
        ValueError, match="dim must be a multiple of 8 and image_size of 4; got dim=12 and image_size=32"
    ):
        ConvolutionalStem(1, 12)
