"""Hostile names, links, numbers and texts in files: one clear error, nothing written elsewhere, nothing shown raw.

Hand-made files are here; mutated ones come from ``tests/fuzz``, of which a short part runs here.
"""

import ast
import contextlib
import io
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import time
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from rich.table import Table as RichTable
from rich.text import Text
from safetensors import safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

import picaset
from picaset.checks import check_device
from picaset.cli import main
from picaset.cli.version import Version
from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.set_estimators import SetClassifier
from picaset.figures import MAX_STEPS, MAX_TEMPLATES
from picaset.files import MAX_JSON_DEPTH, check_name, read_json
from picaset.lab.data.folders import MAX_PIXELS, load_image
from picaset.lab.experiments import experiment
from picaset.lab.reports import scenes
from picaset.lab.reports.page import Cell, Table
from picaset.lab.reports.reproduction import choose_records
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.run_directory import RunDirectory
from picaset.networks.set_networks import DeepSets, Picaso
from picaset.pretrained import ModuleConfig
from picaset.terminal import CONTROL, Terminal, printable, say
from tests.fuzz.record import add_results, new_row, read_rows, with_tables, write_rows
from tests.fuzz.runner import OUTCOMES, Target, command, processor_seconds, run_in_workers, run_inputs
from tests.fuzz.tables import TABLES
from tests.fuzz.targets import FIXTURES, TARGETS, saved_estimators
from tests.planted_faults import FAULTS, ROOT

SMOKE = experiment("clustering-ours", profile="smoke")
HOSTILE = "a\x1b[31m[/x]\x9b2J\u202e<b>|\ud800"


def config_with(**changes) -> dict:
    return SMOKE.to_json() | changes


def write_config(folder: Path, change) -> Path:
    described = SMOKE.to_json()
    change(described)
    (folder / "config.json").write_text(json.dumps(described))
    return folder / "config.json"


# Names are one component of a path


@pytest.mark.parametrize("field", ["name", "profile"])
@pytest.mark.parametrize(
    "name", ["../../x", "/tmp/x", "a/b", "a\\b", "..", ".", "", ".hidden", "-x", "a b", "ü", "\0", "a" * 101]
)
def test_a_run_is_never_written_outside_of_its_folder(tmp_path, capsys, field, name):
    path = write_config(tmp_path, lambda config: config.update({field: name}))
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "runs"), "--json"]) == 1
    assert (
        f"{field} must be letters, digits, '.', '_' or '-', at most 100, the first no mark; got "
        in capsys.readouterr().err
    )
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_ordinary_name_is_a_name():
    assert [check_name(name, where="here") for name in ("clustering-ours", "quick-70-steps", "mine.v_2")]


def half_a_run(folder: Path) -> Path:
    run = folder / "run"
    shutil.copytree(FIXTURES / "runs/clustering-ours", run)
    (run / "result.json").unlink()
    return run


@pytest.mark.parametrize(
    "name", ["checkpoints", "checkpoints/best", "checkpoints/step-00000002", "metrics.jsonl", "config.json"]
)
def test_a_link_in_a_run_directory_is_refused_and_what_it_leads_to_is_not_touched(tmp_path, capsys, name):
    run = half_a_run(tmp_path)
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    before = {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}
    for arguments in (["train", "--resume", str(run)], ["evaluate", str(run)], ["look", str(run)]):
        assert main(arguments) == 1
        assert (
            f"{run / name} is a symbolic link, which may lead anywhere; replace it by a copy."
            in capsys.readouterr().err
        )
    assert before == {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}


def test_a_file_of_a_network_may_not_lead_out_of_its_folder_but_into_the_cache_of_the_hub(tmp_path):
    snapshot = tmp_path / "models--x/snapshots/main"
    DeepSets(2, 3, dim=4).save_pretrained(snapshot)
    blobs = tmp_path / "models--x/blobs"
    blobs.mkdir()
    (snapshot / "model.safetensors").rename(blobs / "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    DeepSets.from_pretrained(snapshot)
    (blobs / "abc").rename(tmp_path / "abc")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(tmp_path / "abc")
    with pytest.raises(
        ValueError, match=r"model\.safetensors is a symbolic link out of its folder, to .*abc; replace it"
    ):
        DeepSets.from_pretrained(snapshot)


@pytest.fixture
def limited_time():
    """Raise an error after a minute, also in a call that waits for another program."""

    def give_up(number: int, frame: object) -> None:
        raise AssertionError("waits for somebody to write to a pipe")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("name", ["config.json", "environment.json", "result.json", "metrics.jsonl"])
@pytest.mark.usefixtures("limited_time")
def test_a_pipe_in_the_place_of_a_file_of_a_run_is_not_waited_for(tmp_path, name):
    run = tmp_path / "runs/one"
    shutil.copytree(FIXTURES / "runs/clustering-ours", run)
    (run / name).unlink()
    os.mkfifo(run / name)
    skipped = list[str]()
    choose_records(tmp_path / "runs", on_skip=skipped.append)
    refused = f"skipped {run}: {name} must be a file; it is a folder, a pipe or a device."
    assert any(refused in line for line in skipped) == (name == "environment.json"), skipped


@pytest.mark.usefixtures("limited_time")
def test_a_checkpoint_that_is_a_pipe_is_damaged(tmp_path):
    run = RunDirectory.open(half_a_run(tmp_path))
    newest = run.checkpoints()[-1]
    (newest / "state.json").unlink()
    os.mkfifo(newest / "state.json")
    with pytest.raises(
        ValueError, match=r"is damaged \(.*state\.json must be a file; it is a folder, a pipe or a device"
    ):
        run.last_checkpoint()


# Numbers that no machine can serve


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c["task"].update(num_benchmark_sets=10**9),
            "num_benchmark_sets must be at most 1000000; got 1000000000.",
        ),
        (lambda c: c["task"].update(sizes=[1, 10**9]), "sizes must be at most 1000000; got (1, 1000000000)."),
        (
            lambda c: c["task"]["network"]["arguments"].update(num_steps=10**9),
            "num_steps must be at most 1000; got 1000000000.",
        ),
        (
            lambda c: c["task"]["network"]["arguments"].update(num_encoder_blocks=10**9),
            "it describes a network of more than",
        ),
        (lambda c: c["task"]["network"]["arguments"].update(dim=2**28), "it describes a network"),
        (lambda c: c["task"]["network"]["arguments"].update(dim=10**30), "dim must be a whole number; got 1"),
        (lambda c: c["training"].update(steps=10**12), "steps must be at most 1000000000; got 1000000000000."),
        (lambda c: c["training"].update(batch_size=10**9), "batch_size must be at most 1000000; got 1000000000."),
        (lambda c: c["training"].update(seed=-1), "seed must not be negative; got -1."),
        (lambda c: c["training"].update(learning_rate=math.nan), "learning_rate must be a number; got nan."),
    ],
)
def test_a_config_that_asks_for_too_much_is_refused_before_anything_is_built(tmp_path, capsys, change, message):
    path = write_config(tmp_path, change)
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "runs"), "--json"]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_description_of_a_network_with_too_many_steps_is_refused():
    assert ModuleConfig.of(Picaso, dim_in=2, dim_out=3, num_steps=1000)["num_steps"] == 1000
    with pytest.raises(ValueError, match="num_steps must be at most 1000; got 1001"):
        ModuleConfig.of(Picaso, dim_in=2, dim_out=3, num_steps=1001)


@pytest.mark.parametrize("argument", ["num_encoder_blocks", "dim", "num_inducing", "dim_out"])
def test_a_network_larger_than_its_weights_is_refused_before_it_is_built(tmp_path, argument):
    Picaso(2, 3, dim=8, num_heads=2, num_inducing=2).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["config"][argument] = 2**28
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"of more than twice the \d+ weights in model.safetensors|cannot be built"):
        Picaso.from_pretrained(tmp_path)


def test_a_network_that_is_built_counts_no_parameters_of_other_threads_and_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = DeepSets(2, 3, dim=4).state_dict()
    torch.manual_seed(0)
    found = ModuleConfig.of(DeepSets, dim_in=2, dim_out=3, dim=4).build().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_an_image_is_refused_by_its_number_of_pixels_before_it_is_decoded(tmp_path):
    (tmp_path / "large.png").write_bytes(png(2**13, 2**12))
    with pytest.raises(ValueError, match=rf"8192 x 4096 pixels, of at most {MAX_PIXELS}\); fetch it again"):
        load_image(tmp_path / "large.png", remedy="remove it")


@pytest.mark.parametrize("depth", [MAX_JSON_DEPTH + 1, 100_000])
def test_deeply_nested_json_is_one_clear_error(tmp_path, capsys, depth):
    path = tmp_path / "config.json"
    path.write_text('{"a":' + "[" * depth + "]" * depth + "}")
    with pytest.raises(ValueError, match=r"config.json is not JSON \(it is nested more than 100 levels deep\)"):
        read_json(path)
    assert main(["train", "--config", str(path)]) == 1
    assert "nested more than 100 levels deep" in capsys.readouterr().err


def test_a_json_file_is_refused_by_its_size(tmp_path):
    (tmp_path / "a.json").write_text('{"a": "' + "x" * 100 + '"}')
    with pytest.raises(ValueError, match=r"a.json must be JSON of at most 50 bytes; got 109. Is it the right file\?"):
        read_json(tmp_path / "a.json", max_bytes=50)


def test_an_old_config_with_a_number_that_overflows_is_one_clear_error(tmp_path):
    described = json.loads((FIXTURES / "runs/scenes-dspn30/config.json").read_text())
    assert described.get("version", 1) == 1
    described["task"]["image_size"] = 1e300
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"config\.json, task: .*result out of range"):
        Experiment.read(tmp_path / "config.json")


# Half of a set of values is worse than an error


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, number):
    DeepSets(2, 3, dim=4).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = number
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=f"{name} holds NaN or infinity; the file is damaged, or its training diverged"
    ):
        DeepSets.from_pretrained(tmp_path)


@pytest.mark.parametrize(("kind", "name"), [(SetAnomalyDetector, "score_elements"), (SetClassifier, "predict_proba")])
def test_a_prediction_that_overflows_is_an_error(tmp_path, kind, name):
    """The trial set that is predicted when an estimator is loaded may be one that does not."""
    path = {SetAnomalyDetector: "set_anomaly_detector", SetClassifier: "set_classifier"}[kind]
    estimator = kind.load(FIXTURES / "estimators" / path)
    for parameter in estimator.network_.parameters():
        parameter.data.fill_(3e38)
    with pytest.raises(ValueError, match=f"{kind.__name__}.{name}: a prediction is NaN or infinite"):
        getattr(estimator, name)([np.ones((4, 3))])


def test_weights_of_another_type_are_refused(tmp_path):
    DeepSets(2, 3, dim=4).save_pretrained(tmp_path)
    weights = {name: tensor.to(torch.int32) for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"must be torch.float32; got torch.int32"):
        DeepSets.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["learned"]["scale"].__setitem__(0, math.nan), r"learned.scale\[0\] must be a number; got nan"),
        (lambda d: d["learned"]["mean"].__setitem__(1, "x"), r"learned.mean\[1\] must be a number; got 'x'"),
        (
            lambda d: d["learned"]["scale"].__setitem__(0, 0.0),
            "mean and scale must have the same length, and scale must be positive",
        ),
        (lambda d: d["learned"].pop("mean"), "learned lacks 'mean'; was it written by another program"),
        (lambda d: d["learned"].update(threshold=[]), r"learned.threshold must be a number; got \[\]"),
        (lambda d: d["parameters"].update(num_steps=10**9), "num_steps must be at most 1000; got 1000000000"),
        (lambda d: d["parameters"].update(dim={}), r"dim must be a whole number; got \{\}"),
        (lambda d: d["parameters"].update(dimm=3), "there is no parameter 'dimm'; did you mean 'dim'"),
        (lambda d: d.update(estimator={}), r"describes a \{\}; load it with"),
    ],
)
def test_an_estimator_with_values_of_other_types_is_one_clear_error(tmp_path, change, message):
    shutil.copytree(FIXTURES / "estimators/set_anomaly_detector", tmp_path / "saved")
    described = json.loads((tmp_path / "saved/estimator.json").read_text())
    change(described)
    (tmp_path / "saved/estimator.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=message):
        SetAnomalyDetector.load(tmp_path / "saved")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """Estimators of this version by name, as the fuzzer starts from."""
    folder = tmp_path_factory.mktemp("estimators")
    for files in saved_estimators():
        name = json.loads(files["estimator.json"])["estimator"]
        for file, content in files.items():
            (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / file).write_bytes(content)
    return folder


def changed(saved: Path, folder: Path, name: str, change) -> Path:
    """Copy a saved estimator, with its description changed."""
    shutil.copytree(saved / name, folder / name)
    described = json.loads((folder / name / "estimator.json").read_text())
    change(described)
    (folder / name / "estimator.json").write_text(json.dumps(described))
    return folder / name


@pytest.mark.as_installed
@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (AmortizedMixture, lambda d: d["parameters"].update(tol=[]), r"tol must be a number; got \[\]"),
        (AmortizedMixture, lambda d: d["learned"]["weights_"].pop(), "does not hold a AmortizedMixture that predicts"),
        (AmortizedMixture, lambda d: d["learned"]["weights_"].__setitem__(0, -1.0), "predicts NaN or infinity"),
        (AmortizedMixture, lambda d: d["learned"].update(covariance_type_="round"), "must be one of 'spherical'"),
        (SetAnomalyDetector, lambda d: d["learned"]["weights"].update(x=[0.0, 1.0]), "KeyError: 'x'"),
        (SetAnomalyDetector, lambda d: d["learned"]["statistics"].update(gaussian=[[[1]]]), "does not fit a SetAnom"),
        (SetAnomalyDetector, lambda d: d["learned"].update(statistics=None), "does not hold a SetAnomalyDetector that"),
        (SetAnomalyDetector, lambda d: d["parameters"].update(device="x"), "device must be one of PyTorch"),
        (SetClassifier, lambda d: d["learned"].update(num_networks=10**9), "num_networks must be 0 to 1000"),
        (SetClassifier, lambda d: d["learned"].update(names=["x"]), "names must be "),
        (SetClassifier, lambda d: d["learned"].update(dtype="V9"), "dtype must be that of texts, numbers"),
        (SetClassifier, lambda d: d["learned"].update(num_labels=9), "num_labels and classes must have the same"),
    ],
)
def test_an_estimator_whose_values_do_not_fit_together_is_refused_when_it_is_loaded(
    saved, tmp_path, kind, change, message
):
    with pytest.raises(ValueError, match=message):
        kind.load(changed(saved, tmp_path, kind.__name__, change))


NO_DEVICES = ["cuda:77", "meta", "hpu", "privateuseone"]
"""Devices that have no numbers here; PyTorch raises another error for each, or none."""


@pytest.mark.as_installed
@pytest.mark.parametrize("device", NO_DEVICES)
def test_a_device_that_this_machine_does_not_have_is_replaced_by_the_cpu(saved, tmp_path, device):
    for kind in (SetAnomalyDetector, SetClassifier):
        path = changed(saved, tmp_path, kind.__name__, lambda d: d["parameters"].update(device=device))
        assert kind.load(path).device == "cpu"


@pytest.mark.parametrize("device", NO_DEVICES)
def test_a_device_without_numbers_is_refused(device):
    with pytest.raises(ValueError, match=f"such as 'cpu'; got '{device}'"):
        check_device(device, caller="here")


@pytest.mark.as_installed
def test_the_length_of_a_label_is_that_of_the_label(saved, tmp_path):
    path = changed(saved, tmp_path, "SetClassifier", lambda d: d["learned"].update(dtype="<U100000000"))
    assert SetClassifier.load(path).classes_.tolist() == ["left", "right"]


def find_all(value, key: str) -> list:
    """Return the objects in a JSON value that have a key."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] * (isinstance(value, dict) and key in value) + [one for part in inner for one in find_all(part, key)]


@pytest.mark.as_installed
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda j, a: a[find_all(j, "left_child")[0]["left_child"]["array"]].__setitem__(0, 99),
            "a node that does not",
        ),
        (lambda j, a: a[find_all(j, "left_child")[0]["left_child"]["array"]].__setitem__(0, 0), "a node that does not"),
        (lambda j, a: a[find_all(j, "feature")[0]["feature"]["array"]].__setitem__(0, 9999), "a feature that does not"),
        (lambda j, a: a[find_all(j, "threshold")[0]["threshold"]["array"]].__setitem__(0, math.nan), "NaN or infinity"),
        (lambda j, a: find_all(j, "tree")[0]["tree"].update(n_features=2.5), "must be a whole number; got 2.5"),
        (
            lambda j, a: find_all(j, "tree")[0]["tree"].update(n_features=10**6),
            "fitted to a different number of features than its member",
        ),
        (
            lambda j, a: find_all(j, "tree")[0]["tree"].update(n_outputs=10**6),
            "must have 1 to 10000 classes for each of 1000000",
        ),
        (lambda j, a: find_all(j, "kernel")[0].update(kernel="precomputed"), "kernel of a support vector machine"),
        (lambda j, a: find_all(j, "_sparse")[0].update(_sparse=True), "_sparse of a support vector machine must be"),
        (lambda j, a: find_all(j, "support_")[0].update(support_={"array": "a0"}), "support_ of a support vector"),
        (lambda j, a: find_all(j, "n_jobs")[0].update(n_jobs=10**6), "n_jobs and verbose of a member must be"),
        (lambda j, a: find_all(j, "n_jobs")[0].update(max_depth="x"), "The 'max_depth' parameter"),
        (
            lambda j, a: j.update({"class": "os.system"}) or j.pop("dict"),
            "'os.system' is not a class of a saved member",
        ),
        (
            lambda j, a: find_all(j, "words_")[0].update(words_={"list": [1], "dtype": "V9"}),
            r"list\[0\] must be a string",
        ),
    ],
)
def test_members_that_do_not_fit_together_are_one_clear_error(saved, tmp_path, change, message):
    path = changed(saved, tmp_path, "SetClassifier", lambda d: None) / "members.safetensors"
    with safe_open(path, framework="numpy") as file:
        described = json.loads(file.metadata()["ensemble"])
    arrays = load_arrays(path)
    change(described, arrays)
    save_arrays(arrays, path, metadata={"ensemble": json.dumps(described)})
    with pytest.raises(ValueError, match=f"does not hold the members of a SetClassifier.*{message}"):
        SetClassifier.load(path.parent)


@pytest.mark.parametrize("version", [3, 0, "2", None, []])
def test_an_estimator_of_a_newer_format_is_refused(tmp_path, version):
    path = changed(
        FIXTURES / "estimators", tmp_path, "set_anomaly_detector", lambda d: d.update(format_version=version)
    )
    with pytest.raises(ValueError, match=r"has format version .*; this picaset reads versions 1 to 2\. Install "):
        SetAnomalyDetector.load(path)


def test_the_pairs_of_a_parameter_are_pairs(tmp_path):
    shutil.copytree(FIXTURES / "estimators/set_classifier", tmp_path / "saved")
    described = json.loads((tmp_path / "saved/estimator.json").read_text())
    described["parameters"]["class_weight"] = {"pairs": [[1, 2, 3]]}
    (tmp_path / "saved/estimator.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"class_weight\[0\] must be tuple"):
        SetClassifier.load(tmp_path / "saved")


def test_a_network_of_another_shape_than_its_run_describes_is_refused(tmp_path, capsys):
    run = half_a_run(tmp_path)
    config = Experiment.read(run / "config.json")
    other = replace(config, task=replace(config.task, network=config.task.network.replace(num_steps=2)))
    (run / "config.json").write_text(json.dumps(other.to_json()))
    assert main(["evaluate", str(run)]) == 1
    assert "holds another network than the config.json of its run describes." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors.update({"optimizer.0.exp_avg": torch.zeros(1)}), "moments of parameter 0"),
        (lambda tensors: tensors.pop("optimizer.0.exp_avg_sq"), "moments of parameter 0"),
        (lambda tensors: tensors.update(random=torch.zeros(3)), "has checkpoints of another network"),
    ],
)
def test_moments_of_another_optimizer_are_refused(tmp_path, capsys, change, reason):
    run = half_a_run(tmp_path)
    path = run / "checkpoints/step-00000002/tensors.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    assert main(["train", "--resume", str(run), "--accelerator", "cpu"]) == 1
    assert reason in capsys.readouterr().err


def test_a_checkpoint_after_the_last_step_is_refused(tmp_path, capsys):
    run = half_a_run(tmp_path)
    (run / "checkpoints/step-00000002").rename(run / "checkpoints/step-00000009")
    state = run / "checkpoints/step-00000009/state.json"
    assert main(["train", "--resume", str(run), "--accelerator", "cpu"]) == 1
    assert "state.json is that of step 2" in capsys.readouterr().err
    state.write_text(json.dumps(json.loads(state.read_text()) | {"step": 9}))
    assert main(["train", "--resume", str(run), "--accelerator", "cpu"]) == 1
    assert "step 9 of 2" in capsys.readouterr().err


@pytest.mark.as_installed
def test_temporary_files_of_a_killed_run_are_removed_at_resume(tmp_path):
    run = half_a_run(tmp_path)
    left = [run / ".result.json.17-1.tmp", run / "checkpoints/best/.model.safetensors.17-1.tmp"]
    for path in left:
        path.write_text("half")
    (run / "checkpoints/.step-00000009.tmp").mkdir()
    assert main(["train", "--resume", str(run), "--accelerator", "cpu", "--json"]) == 0
    assert not list(run.rglob("*.tmp"))


# What is shown


def test_every_text_reaches_the_terminal_through_one_layer():
    """A command that prints by itself could print a control character of a file."""
    for path in sorted(Path(picaset.__file__).parent.rglob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "Console"), f"{path}:{node.lineno}: use picaset.terminal"


def test_printable_text_has_no_control_character_and_keeps_all_others():
    assert not CONTROL.search(printable("".join(map(chr, range(0x3000))) + HOSTILE))
    assert printable("ünï → 日本 [bold] \\x") == "ünï → 日本 [bold] \\x"


@pytest.mark.parametrize("as_text", [False, True])
def test_markup_and_escape_sequences_are_shown_as_they_are_written(as_text):
    output = io.StringIO()
    terminal = Terminal(file=output, width=300)
    grid = RichTable(HOSTILE, title=HOSTILE)
    grid.add_row(Text(HOSTILE) if as_text else HOSTILE)
    terminal.print(grid)
    terminal.print(Text(HOSTILE, style="bold") if as_text else HOSTILE)
    assert not CONTROL.search(output.getvalue())
    assert output.getvalue().count("a\\x1b[31m[/x]\\x9b2J\\u202e<b>|\\ud800") == 4


def test_names_of_columns_and_sets_are_shown_as_they_are_written(tmp_path, capsys):
    name = "a\x1b[31m[/x]"
    rows = [f"{set_},{x},{x * x}" for set_ in (name, "[bold]b") for x in range(12)]
    (tmp_path / "points.csv").write_text(f"set,{name},y[/]\n" + "\n".join(rows) + "\n")
    command = ["cluster", str(tmp_path / "points.csv"), "--set", "set", "--components", "1", "--init", "k-means++"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "a\\x1b[31m[/x]" in shown
    assert not CONTROL.search(shown)
    assert main([*command, "--columns", "none\x1b[31m"]) == 1
    assert not CONTROL.search(capsys.readouterr().err)


def test_a_name_of_a_file_where_an_option_is_expected_is_escaped(tmp_path, capsys):
    path = tmp_path / "a\x1b[31m\x9b2J.csv"
    path.write_text("x,y\n" + "1,2\n3,4\n5,6\n" * 4)
    assert main(["cluster", str(path), "--components", "1", "--json"]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["cluster", str(path), str(path)])
    shown = capsys.readouterr().err
    assert "a\\x1b[31m\\x9b2J.csv" in shown
    assert not CONTROL.search(shown)


def test_warnings_of_libraries_are_escaped_while_a_command_runs(monkeypatch):
    formatted = list[str]()

    def run(self: Version) -> int:
        formatted.append(warnings.formatwarning(f"Glyph missing: {HOSTILE}", UserWarning, "plot.py", 1))
        return 0

    monkeypatch.setattr(Version, "run", run)
    before = warnings.formatwarning
    assert main(["version"]) == 0
    assert "a\\x1b[31m[/x]" in formatted[0]
    assert not CONTROL.search(formatted[0])
    assert warnings.formatwarning is before


def test_a_run_whose_texts_are_hostile_is_reported_without_html_or_control_characters(tmp_path, capsys):
    shutil.copytree(FIXTURES / "runs/odd-one-out-sa-gpb", tmp_path / "runs/one")
    path = tmp_path / "runs/one/result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": "<script>x</script>|\x1b[31m[/x]"}))
    assert main(["report", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert not CONTROL.search(capsys.readouterr().out)
    text = (tmp_path / "report/tables.md").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;x&lt;/script&gt;\\|\\x1b[31m[/x]" in text
    page = (tmp_path / "report/index.html").read_text()
    assert "&lt;script&gt;x&lt;/script&gt;|\\x1b[31m[/x]" in page
    assert "<script>x" not in page
    assert "\x1b" not in page


def test_cells_of_a_markdown_table_hold_no_html_and_no_separator():
    table = Table("title", ["<b>", "b|c"], [[Cell("<i>"), Cell("x|y", published="<p>", best=True)]])
    assert table.markdown() == "| &lt;b&gt; | b\\|c |\n|---|---|\n| &lt;i&gt; | **x\\|y**<br>&lt;p&gt; |\n"


def test_names_that_are_no_text_are_written_as_escapes(tmp_path, capsys):
    rows = [{"\ud800": index, "é": index * index, "set": "\udfff"} for index in range(20)]
    (tmp_path / "points.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for options in ([], ["--in-chunks"]):
        results = [str(tmp_path / name) for name in ("labels.csv", "parameters.csv")]
        outputs = ["--labels", results[0], "--parameters", results[1]]
        assert main(["cluster", str(tmp_path / "points.jsonl"), "--components", "2", *outputs, *options]) == 0
        for path in results:
            assert "\\ud800" in Path(path).read_text(encoding="utf-8")
            assert "é" in Path(path).read_text(encoding="utf-8")
    capsys.readouterr()


def test_a_line_about_a_file_whose_name_is_not_text_is_printed(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "a\udcff\x1b[31m")]) == 1
    assert "a\\udcff\\x1b[31m is not a run directory" in capsys.readouterr().err


# A short part of `make fuzz`


@pytest.mark.as_installed
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_files_are_accepted_or_clearly_refused(target, tmp_path, monkeypatch):
    (tmp_path / "results/runs").mkdir(parents=True)  # reports read no committed records then
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = list(run_inputs(target, range(60 if target in TABLES else 25), seed=1))
    assert [(number, result) for number, result in results if result.is_failure] == []
    assert len({result.outcome for _, result in results}) == 2, "some are accepted and some are refused"


def test_an_input_that_kills_its_worker_is_counted_and_the_next_ones_run():
    whole = b"x" * 50

    def use(folder: Path, random: Random) -> None:
        if not (folder / "a").is_file() or (folder / "a").read_bytes() != whole:
            os.kill(os.getpid(), signal.SIGTERM)

    results = dict(run_in_workers(Target("killing", lambda: [{"a": whole}], use), 3, seed=0))
    assert list(results) == [0, 1, 2]
    assert all(result.is_failure and "worker ended by -15" in result.details for result in results.values())


ONE_FILE = [{"a": b"x" * 50}]


@pytest.mark.parametrize("as_thread", [False, True])
def test_a_defect_of_a_command_is_counted_as_a_traceback(monkeypatch, as_thread):
    def fail(self: Version) -> int:
        if as_thread:
            say("Traceback (most recent call last):\n", error=True)  # as an error of a thread is printed
            return 0
        raise KeyError("a key that is missing")

    monkeypatch.setattr(Version, "run", fail)
    target = Target("defect", lambda: ONE_FILE, lambda folder, random: command("version"))
    ((_, result),) = run_inputs(target, range(1), seed=0)
    assert result.outcome == "traceback"
    assert "Traceback" in result.details
    assert as_thread or "a key that is missing" in result.details
    assert as_thread or main(["version"]) == 1


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda folder: (folder / "x").write_text(""), "accepted"),
        (lambda folder: (folder.parent / "given2").write_text(""), "wrote outside"),
        (lambda folder: Path("../x").write_text(""), "wrote outside"),
        (lambda folder: Path("../x").mkdir(), "wrote outside"),
        (lambda folder: os.symlink("file", folder.parent / "outside/link"), "wrote outside"),
        (lambda folder: os.rename(folder / "x", "../x"), "wrote outside"),
        (lambda folder: (folder / "x/../../x").write_text(""), "wrote outside"),
    ],
)
def test_a_write_outside_of_the_given_folder_is_noticed(tmp_path, monkeypatch, write, expected):
    for name in ("fuzz", "caches", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("PICASET_CACHE", "MPLCONFIGDIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / "caches"))
    monkeypatch.setenv("PICASET_FUZZ", str(tmp_path / "fuzz"))
    target = Target("writing", lambda: ONE_FILE, lambda folder, random: write_and_catch(write, folder))
    assert [result.outcome for _, result in run_inputs(target, range(1), seed=0)] == [expected]


def write_and_catch(write, folder: Path) -> None:
    with contextlib.suppress(OSError):  # an attempt counts as well
        write(folder)


def test_memory_is_limited_while_inputs_are_used():
    target = Target("large", lambda: ONE_FILE, lambda folder, random: bytearray(2**33))
    ((_, result),) = run_inputs(target, range(1), seed=0)
    assert "MemoryError" in result.details


def test_the_tables_of_the_fuzzing_are_those_of_its_record():
    text = (ROOT / "docs/reliability.md").read_text()
    (name,) = re.findall(r"\(\.\./(results/fuzz__[\w.-]+\.json)\)", text)
    rows = read_rows(ROOT / name)
    assert with_tables(text, ROOT / name) == text
    assert set(rows) <= {target.name for target in TARGETS}
    for row in rows.values():
        assert row["inputs"] == sum(row[outcome] for outcome in OUTCOMES)
        assert not row["commit"].endswith("+")


def test_an_interrupted_row_of_the_fuzzing_is_saved(tmp_path):
    def use(folder: Path, random: Random) -> None:
        used.append(folder)
        if len(used) == 3:
            raise KeyboardInterrupt

    def interrupt(number, result):
        raise KeyboardInterrupt

    used = []
    row = new_row("short", seed=3)
    results = run_inputs(Target("short", lambda: ONE_FILE, use), range(5), seed=3)
    with pytest.raises(KeyboardInterrupt):
        add_results(row, results, on_failure=interrupt, save=lambda: write_rows(tmp_path / "record.json", {"": row}))
    (saved,) = read_rows(tmp_path / "record.json").values()
    assert (saved["inputs"], saved["accepted"], saved["traceback"], saved["failures"]) == (3, 2, 1, [2])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_has_its_place_and_its_test(fault):
    """``python -m tests.planted_faults`` plants them."""
    assert (ROOT / "picaset" / fault.file).read_text().count(fault.old) == 1
    file, _, name = fault.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text()


def test_the_document_lists_every_planted_fault_with_its_test():
    section = (ROOT / "docs/reliability.md").read_text().partition("## Planted faults")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert [row[:2] for row in rows] == [[fault.name, "`{}`: `{}`".format(*fault.test.split("::"))] for fault in FAULTS]
    assert {row[2] for row in rows} <= {"fails", "crashes", "does not end"}


def test_every_test_that_the_document_names_exists():
    text = (ROOT / "docs/reliability.md").read_text()
    named = re.findall(r"`(test_\w+\.py)`:\s`(test_\w+)", text)
    assert len(named) > 40
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), (file, name)


def test_the_table_of_the_studio_under_load_is_that_of_its_record():
    text = (ROOT / "docs/reliability.md").read_text()
    (name,) = re.findall(r"\(\.\./(results/studio_load__[\w.-]+\.json)\)", text)
    rows = json.loads((ROOT / name).read_text())["rows"]
    for row in rows:
        assert f"| {row['phase']} | {row['page_milliseconds']:.0f} | {row['megabytes']:.0f} |" in text
    refused = next(row for row in rows if row["phase"] == "after refused requests")
    for kind, status in {"oversize body": 413, "chunked body": 411, "foreign host": 403, "origin null": 403}.items():
        assert refused[kind] == status
    assert all(row["still_open"] == 0 for row in rows if "still_open" in row)
    assert rows[-1]["killed"] == 2
    assert rows[-1]["statuses"][-1] == 200


def test_a_mutation_depends_on_its_seed_alone():
    from tests.fuzz.mutations import mutate

    files = TARGETS[0].files()[0]
    assert mutate(files, Random(3)) == mutate(files, Random(3)) != files
    assert np.mean([mutate(files, Random(seed)) != files for seed in range(50)]) > 0.8


def test_results_of_a_run_are_checked_when_they_are_read(tmp_path):
    shutil.copytree(FIXTURES / "runs/clustering-ours", tmp_path / "run")
    for name, change, message in (
        ("result.json", {"seconds": "long"}, "result.json: seconds must be a number; got 'long'."),
        ("result.json", {"parameters": 1.5}, "result.json: parameters must be a whole number; got 1.5."),
        ("environment.json", {"data": None}, "environment.json: data must be a string; got None."),
        ("metrics.jsonl", {"score": []}, r"metrics.jsonl: line 1.score must be a number; got \[\]."),
    ):
        path = tmp_path / "run" / name
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before.splitlines()[0] if name == "metrics.jsonl" else before) | change))
        with pytest.raises(ValueError, match=message):
            _ = (
                RunDirectory(tmp_path / "run").result,
                RunDirectory(tmp_path / "run").environment,
                RunDirectory(tmp_path / "run").metrics,
            )
        path.write_text(before)


def test_a_network_of_many_steps_is_drawn_with_a_bounded_number_of_panels(tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(FIXTURES / "runs/scenes-ours-likelihood", run)
    for path in (run / "config.json", run / "checkpoints/final/config.json"):
        text = path.read_text()
        assert text.count('"num_steps": 3') == 1
        path.write_text(text.replace('"num_steps": 3', '"num_steps": 20'))
    figures = {}
    monkeypatch.setattr(scenes, "write_figure", lambda figure, folder, name: figures.update({name: figure}) or [])
    assert main(["look", str(run), "--out", str(tmp_path / "look")]) == 0
    axes = figures["scene_attention"].axes
    assert len(axes) == MAX_STEPS * MAX_TEMPLATES
    assert [axis.get_ylabel() for axis in axes[::MAX_TEMPLATES]] == [f"step {step}" for step in (1, 5, 10, 15, 20)]


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the fuzzer reads the state of a process on Linux only"
)
def test_a_paused_process_is_no_hang_for_the_fuzzer_and_a_waiting_one_is():
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            deadline = time.monotonic() + 20
            while processor_seconds(process.pid)[1] and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not processor_seconds(process.pid)[1]
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert processor_seconds(process.pid)[1]
        finally:
            process.kill()
