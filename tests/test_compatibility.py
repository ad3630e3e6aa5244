"""Artefacts of version 0.1 load in this version and give the same numbers.

``tests/fixtures/version_0_1`` holds networks, estimators and runs that version 0.1 wrote, with their predictions.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import picaset
from picaset.lab.experiments import experiment as named_experiment
from picaset.lab.experiments import viewpoints
from picaset.lab.networks.capsules import CapsuleNetwork
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.run_directory import RunDirectory, describe_environment
from picaset.networks.element_scorer import ElementScorer
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.set_predictor import SetPredictor

OLD = Path(__file__).parent / "fixtures" / "version_0_1"
RECORDS = sorted((Path(__file__).parent.parent / "results").glob("*/*/config.json"))
NETWORKS = {
    "DeepSets": picaset.DeepSets,
    "SetTransformer": picaset.SetTransformer,
    "Picaso": picaset.Picaso,
    "MixtureNetwork": MixtureNetwork,
    "MixtureProposer": MixtureProposer,
    "OddOneOutNetwork": OddOneOutNetwork,
    "ViewClassifier": ViewClassifier,
    "CapsuleNetwork": CapsuleNetwork,
    "ElementScorer": ElementScorer,
    "SetPredictor": SetPredictor,
    "SceneNetwork": SceneNetwork,
}
POINTS_OF_ONE_SET = {"mixture_linear": (2, 9, 2), "mixture_moments": (2, 9, 2), "mixture_proposer": (2, 9, 2)}
IMAGES = {"odd_one_out": (2, 8, 3, 64, 64), "view_classifier": (2, 1, 32, 32), "capsules": (2, 1, 32, 32)}


def inputs_of(name: str) -> torch.Tensor:
    """The inputs whose predictions were saved with a network."""
    generator = torch.Generator().manual_seed(7)
    if name.startswith("scene"):
        return torch.rand(2, 3, 32, 32, generator=generator)
    if name in IMAGES:
        return torch.rand(IMAGES[name], generator=generator)
    return torch.randn(POINTS_OF_ONE_SET.get(name, (2, 7, 3)), generator=generator)


@pytest.mark.parametrize("folder", sorted((OLD / "networks").iterdir()), ids=lambda folder: folder.name)
def test_saved_networks_give_the_recorded_predictions(folder: Path):
    network_class = NETWORKS[json.loads((folder / "config.json").read_text())["network"]]
    network = network_class.from_pretrained(folder).float()
    options = {"num_components": 3} if folder.name == "mixture_proposer" else {}
    torch.manual_seed(3)  # sampled slots
    predicted = network(inputs_of(folder.name), **options)
    predicted = [predicted] if isinstance(predicted, torch.Tensor) else predicted
    expected = load_file(folder / "expected.safetensors")
    for index in range(len(expected)):
        torch.testing.assert_close(predicted[index], expected[str(index)], rtol=1e-4, atol=1e-5)


def bags_of(saved: dict[str, np.ndarray]) -> list[np.ndarray]:
    return np.split(saved["bags"], np.cumsum(saved["sizes"])[:-1])


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("SetClassifier", "predict_proba", "proba"),
        ("SetRegressor", "predict", "values"),
        ("SetAnomalyDetector", "score_elements", "scores"),
    ],
)
def test_saved_estimators_give_the_recorded_predictions(name: str, method: str, expected: str):
    folder = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    saved = dict(np.load(OLD / "estimators" / "expected.npz"))
    estimator = getattr(picaset, name).load(OLD / "estimators" / folder)
    predicted = getattr(estimator, method)(bags_of(saved))
    predicted = np.concatenate(predicted) if method == "score_elements" else predicted
    np.testing.assert_allclose(predicted, saved[expected], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", sorted((OLD / "runs").iterdir()), ids=lambda folder: folder.name)
def test_finished_runs_are_read(folder: Path):
    directory = RunDirectory.open(folder)
    result = directory.result
    assert result is not None
    assert result["name"] == directory.experiment.name
    if (folder / "checkpoints" / "final").is_dir():
        network = directory.experiment.task.read_network(folder / "checkpoints" / "final")
        assert sum(parameter.numel() for parameter in network.parameters()) == result["parameters"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_committed_record_is_read_and_written_back(path: Path):
    experiment = Experiment.read(path)
    again = Experiment.from_json(json.loads(json.dumps(experiment.to_json())), where="written back")
    assert again == experiment


def with_block_defaults(described: dict) -> dict:
    """A description of a module with the options of its attention blocks filled in, as records have them."""
    defaults = {"form": "paper", "norm": False, "residual": True, "feed_forward": True}
    arguments = defaults | described["arguments"]
    if isinstance(arguments.get("decoder"), dict):
        arguments["decoder"] = with_block_defaults(arguments["decoder"])
    return described | {"arguments": arguments}


@pytest.mark.parametrize(
    "path", [path for path in RECORDS if path.parent.parent.name == "runs"], ids=lambda path: path.parent.name
)
def test_every_record_of_a_table_is_the_experiment_of_its_name(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(viewpoints, "has_photographs", lambda: True)
    record = Experiment.read(path)
    named = named_experiment(record.name, profile=record.profile, seed=record.training.seed)
    for described in (ours := named.to_json(), theirs := record.to_json()):
        described["task"]["network"] = with_block_defaults(described["task"]["network"])
    assert ours == theirs


def test_records_name_the_commit_of_the_source():
    if not (Path(picaset.__file__).parents[1] / ".git").exists():
        pytest.skip("the source is not a git checkout")
    commit = describe_environment(data="none", devices=1)["commit"]
    assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", commit)
