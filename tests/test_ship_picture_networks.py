"""Networks that look at pictures, shipped: rounded, with a card, and never one that has seen real data."""

import json
from dataclasses import replace

import pytest

from picaset.lab.experiments import experiment
from picaset.lab.reports.records import training_command
from picaset.lab.training.loop import start
from tests.short_runs import import_example

model_card = import_example("model_card")
ship = import_example("ship_picture_networks").ship


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("viewpoints-azimuth-pb3-toys", "scenes-pb3"):
        start(experiment(name, profile="smoke"), folder / name, silent=True, accelerator="cpu")
    return folder


@pytest.mark.parametrize(
    ("name", "measured", "shown"),
    [
        ("viewpoints-azimuth-pb3-toys", "accuracy", "normalised, as patches of 4 x 4"),
        ("scenes-pb3", "average_precision", "an image of 32 x 32 pixels, red green blue"),
    ],
)
def test_a_finished_run_on_generated_pictures_becomes_a_network_with_its_card(runs, name, measured, shown, tmp_path):
    ship(runs / name, tmp_path / "shipped", toys="toys-tiny")
    chosen = experiment(name, profile="smoke")
    network = chosen.task.read_network(tmp_path / "shipped")
    assert {str(tensor.dtype) for tensor in network.state_dict().values()} == {"torch.float16"}
    card = (tmp_path / "shipped/README.md").read_text()
    assert card.startswith("# shipped\n")
    assert f"`picaset train {name} --profile smoke --threads 1`" in card
    assert f"{shown} |" in card
    found = json.loads((runs / name / "result.json").read_text())[measured]
    assert f"| as trained | {' | '.join(f'{value:.3f}' for value in found.values())} |" in card


def test_a_network_that_had_other_toys_than_the_studio_tells_is_refused_and_so_is_a_large_one(
    runs, tmp_path, monkeypatch
):
    with pytest.raises(
        ValueError, match=r"trained on toys-tiny and tested on novel azimuths; the studio needs toys-small"
    ):
        ship(runs / "viewpoints-azimuth-pb3-toys", tmp_path / "shipped")
    monkeypatch.setattr(model_card, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match=r"bytes; a shipped one may take at most 1000\. Train a narrower one"):
        ship(runs / "scenes-pb3", tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


@pytest.mark.parametrize(
    ("profile", "steps", "seed", "options"),
    [("quick", 1500, 0, ""), ("paper", 9, 0, " --profile paper"), ("quick-70-steps", 70, 2, " --steps 70 --seed 2")],
)
def test_a_card_says_how_to_train_the_network_again(profile, steps, seed, options):
    chosen = experiment("scenes-pb3", profile="smoke")
    changed = replace(chosen, profile=profile, training=replace(chosen.training, steps=steps, seed=seed))
    assert training_command(changed) == f"picaset train scenes-pb3{options}"


def test_a_run_on_real_pictures_or_an_unfinished_one_is_never_shipped(runs, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("environment.json", "metrics.jsonl", "result.json"):
        (run / name).write_text((runs / "scenes-pb3" / name).read_text())
    (run / "config.json").write_text(json.dumps(experiment("scenes-clevr-pb3", profile="smoke").to_json()))
    with pytest.raises(ValueError, match="is not a run on generated toys or scenes; only such networks are shipped"):
        ship(run, tmp_path / "shipped")
    (run / "result.json").unlink()
    with pytest.raises(ValueError, match="is not finished; finish it with: picaset train --resume"):
        ship(run, tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()
