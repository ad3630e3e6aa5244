"""Networks that look at pictures, shipped: rounded, with a card, and never one that has seen real data."""

import json
import runpy
from pathlib import Path

import pytest

from picaset.experiments import experiment
from picaset.training.loop import start

ROOT = Path(__file__).parent.parent
ship = runpy.run_path(str(ROOT / "examples/ship_picture_networks.py"))["ship"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("viewpoints-azimuth-pb3-toys", "scenes-pb3"):
        start(experiment(name, profile="smoke"), folder / name, silent=True, accelerator="cpu")
    return folder


@pytest.mark.parametrize(
    ("name", "measured"), [("viewpoints-azimuth-pb3-toys", "accuracy"), ("scenes-pb3", "average_precision")]
)
def test_a_finished_run_on_generated_pictures_becomes_a_network_with_its_card(runs, name, measured, tmp_path):
    ship(runs / name, tmp_path / "shipped")
    chosen = experiment(name, profile="smoke")
    network = chosen.task.read_network(tmp_path / "shipped")
    assert {str(tensor.dtype) for tensor in network.state_dict().values()} == {"torch.float16"}
    card = (tmp_path / "shipped/README.md").read_text()
    assert card.startswith("# shipped\n")
    found = json.loads((runs / name / "result.json").read_text())[measured]
    assert f"| as trained | {' | '.join(f'{value:.3f}' for value in found.values())} |" in card


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
