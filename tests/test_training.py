"""The training loop: exact resuming, several devices, schedules, and what happens when something goes wrong."""

import errno
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.testing import assert_close

from picaset.cli import main
from picaset.lab.data.folders import MissingDataError
from picaset.lab.experiments import EXPERIMENTS, experiment
from picaset.lab.training import loop, run_directory
from picaset.lab.training.experiment import Experiment, Schedule, Training
from picaset.lab.training.loop import learning_rate, resume, start, wait_for
from picaset.lab.training.run_directory import RunDirectory, run_name
from picaset.large.sources import prefetch
from tests.celeba_files import write_celeba
from tests.clevr_files import write_clevr

SMOKE = experiment("clustering-ae32-pb-sa", profile="smoke")
KILLS = int(os.environ.get("PICASET_KILLS", "1"))
"""Number of runs that are stopped or killed, four times each, at random moments."""


def bits(path: Path) -> dict[str, object]:
    """Everything in a run directory that must be bit-identical: all but times."""
    (checkpoint,) = RunDirectory(path).checkpoints()[-1:]
    tensors = {name: tensor.numpy().tobytes() for name, tensor in load_file(checkpoint / "tensors.safetensors").items()}
    result = RunDirectory(path).result or {}
    timeless = {name: value for name, value in result.items() if name not in ("seconds", "milliseconds_per_set")}
    metrics = [{name: row[name] for name in row if name != "seconds"} for row in RunDirectory(path).metrics]
    return {"tensors": tensors, "result": timeless, "metrics": metrics}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("unbroken") / "run"
    start(SMOKE, path, silent=True, accelerator="cpu")
    return path


def test_a_run_directory_is_complete(unbroken):
    assert {entry.name for entry in unbroken.iterdir()} == {
        "config.json", "environment.json", "metrics.jsonl", "checkpoints", "result.json",
    }  # fmt: skip
    assert {entry.name for entry in (unbroken / "checkpoints").iterdir()} == {
        "step-00000015", "step-00000020", "best", "final",
    }  # fmt: skip
    directory = RunDirectory.open(unbroken)
    assert directory.experiment == SMOKE
    assert [row["step"] for row in directory.metrics] == [10, 20]
    assert {"commit", "python", "versions", "hardware", "data"} <= directory.environment.keys()
    assert not [path for path in unbroken.rglob("*") if path.suffix in (".pt", ".pkl", ".ckpt", ".bin")]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(unbroken, tmp_path):
    start(SMOKE, tmp_path / "again", silent=True, accelerator="cpu")
    assert bits(tmp_path / "again") == bits(unbroken)
    other = replace(SMOKE, training=replace(SMOKE.training, seed=1))
    start(other, tmp_path / "other", silent=True, accelerator="cpu")
    assert bits(tmp_path / "other")["tensors"] != bits(unbroken)["tensors"]


def newest(path: Path) -> list[str]:
    return [checkpoint.name for checkpoint in RunDirectory(path).checkpoints()[-1:]]


def wait_for_checkpoint(path: Path, process: subprocess.Popen, *, seconds: float) -> None:
    """Wait until a process has written a new checkpoint or has ended."""
    before, deadline = newest(path), time.monotonic() + seconds
    while newest(path) == before and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_run_stopped_or_killed_at_any_moment_resumes_and_ends_with_the_same_bits(tmp_path, seed):
    longer = replace(SMOKE, training=replace(SMOKE.training, steps=60, checkpoint_every=3, score_every=7))
    path = tmp_path / "run"
    start(longer, tmp_path / "unbroken", silent=True, accelerator="cpu")
    RunDirectory.create(path, longer, {})
    moments = random.Random(seed)
    command = [sys.executable, "-m", "picaset", "train", "--resume", str(path), "--threads", "1", "--json"]
    interruptions = list[int]()
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for_checkpoint(path, process, seconds=300)
        time.sleep(moments.uniform(0.0, 0.05))
        if process.poll() is None:
            process.send_signal(number)
        _, output = process.communicate()
        if process.returncode == 0:
            break
        interruptions.append(number)
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
            continue
        assert process.returncode == 130
        stopped = re.search(r"stopped after step (\d+); resume with: picaset train --resume", output)
        assert stopped, output
        assert newest(path) == [f"step-{int(stopped[1]):08d}"], "stopping did not leave a checkpoint of the last step"
    assert {signal.SIGINT, signal.SIGKILL} <= set(interruptions), "the run ended before it was interrupted"
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert bits(path) == bits(tmp_path / "unbroken")


def test_a_finished_run_is_not_trained_again(unbroken):
    before = bits(unbroken)
    assert resume(unbroken, silent=True) == RunDirectory(unbroken).result
    assert bits(unbroken) == before


def test_two_devices_train_like_one_with_the_doubled_batch(unbroken, tmp_path):
    # The batch of a step is shared out: two processes of two sets each are one of four.
    start(SMOKE, tmp_path / "run", devices=2, silent=True, accelerator="cpu")
    one, two = (RunDirectory(path).result for path in (unbroken, tmp_path / "run"))
    assert two["best_score"] == pytest.approx(one["best_score"], rel=1e-3)
    for mine, theirs in zip(two["moves"], one["moves"], strict=True):
        assert mine["log_likelihood"] == pytest.approx(theirs["log_likelihood"], rel=1e-3)
    # Rounding differs, and Adam takes a full step along a gradient that is nothing but rounding: that of a key bias.
    weights = [load_file(path / "checkpoints/final/model.safetensors") for path in (unbroken, tmp_path / "run")]
    assert_close(weights[1], weights[0], rtol=0, atol=2e-3)
    for name in weights[0]:
        assert "key_map.bias" in name or (weights[1][name] - weights[0][name]).abs().mean() < 2e-4, name


@pytest.mark.as_installed
def test_two_machines_train_like_one(unbroken, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        meeting = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, "-m", "picaset", "train", SMOKE.name]
    command += ["--profile", "smoke", "--nodes", "2", "--accelerator", "cpu", "--out", str(tmp_path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    machines = [subprocess.Popen(command, **quiet) for _ in range(2)]
    for machine in machines:
        said = machine.communicate(timeout=300)[1]
        assert machine.returncode == 0, said
    one, two = (RunDirectory(path).result for path in (unbroken, tmp_path / "clustering-ae32-pb-sa-smoke-seed0"))
    assert two["best_score"] == pytest.approx(one["best_score"], rel=1e-3)


def test_several_machines_without_torchrun_are_refused_with_the_command(tmp_path):
    with pytest.raises(ValueError, match="2 machines need torchrun on each of them: torchrun --nnodes 2 "):
        start(SMOKE, tmp_path / "run", nodes=2, silent=True, accelerator="cpu")
    assert not (tmp_path / "run").exists()


def test_a_batch_that_cannot_be_shared_out_is_refused(tmp_path):
    odd = replace(SMOKE, training=replace(SMOKE.training, batch_size=3))
    with pytest.raises(ValueError, match="batch_size must be a multiple of the number of devices; got 3 and 2"):
        start(odd, tmp_path / "run", devices=2, silent=True, accelerator="cpu")
    with pytest.raises(ValueError, match="devices must be at least 1; got 0"):
        start(odd, tmp_path / "run", devices=0, silent=True, accelerator="cpu")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def real_data(tmp_path_factory) -> Path:
    """Folders like those of the real data, with generated contents."""
    path = tmp_path_factory.mktemp("data")
    write_celeba(path / "celeba", 320)
    write_clevr(path / "clevr", 16, 5)
    return path


# The others are those with another name for their data, or another loss for the same network.
DISTINCT = [name for name in EXPERIMENTS if not name.endswith(("-toys", "-reweighted", "-likelihood"))]


def parts_of(name: str) -> tuple[object, ...]:
    """Return the data and the classes that an experiment is made of."""
    task = experiment(name, profile="smoke").task
    parts = (task.network.get(part) for part in ("encoder", "pool", "readout", "stem"))
    decoder = getattr(task.network.get("decoder"), "name", None)
    return (type(task), getattr(task, "data", None), task.network.name, decoder, *parts)


TRAINED = list({parts_of(name): name for name in reversed(DISTINCT)}.values())


@pytest.mark.parametrize("name", DISTINCT)
def test_every_experiment_has_a_finite_loss_and_gradients(name, real_data, monkeypatch):
    monkeypatch.setenv("PICASET_DATA", str(real_data))
    monkeypatch.setenv("PICASET_CACHE", str(real_data / "cache"))
    short = experiment(name, profile="smoke")
    network = short.task.build_network()
    loss = short.task.loss(network, short.task.batch(0, seed=0, num_examples=2, progress=0.0))
    loss.backward()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert bool(loss.isfinite())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize("name", TRAINED)
def test_an_experiment_of_every_kind_trains_in_its_smallest_size(name, tmp_path, real_data, monkeypatch):
    monkeypatch.setenv("PICASET_DATA", str(real_data))
    monkeypatch.setenv("PICASET_CACHE", str(real_data / "cache"))
    short = experiment(name, profile="smoke")
    short = replace(short, training=replace(short.training, steps=2))
    result = start(short, tmp_path / "run", silent=True, accelerator="cpu")
    assert result["steps"] == 2
    numbers = {
        "clustering": lambda: [row["log_likelihood"]["0"] for row in result["moves"]],
        "mixture-proposals": lambda: [row["below_oracle"]["0"] for row in result["num_components"]],
        "viewpoints": lambda: list(result["accuracy"].values()),
        "odd-one-out": lambda: [result["test"]["auroc"]],
        "scenes": lambda: list(result["average_precision"].values()),
    }[short.kind]()
    assert numbers
    assert bool(torch.tensor(numbers).isfinite().all())
    assert short.kind not in ("viewpoints", "odd-one-out", "scenes") or all(0 <= number <= 1 for number in numbers)


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_its_own_json(name, profile):
    chosen = experiment(name, profile=profile, seed=3)
    assert Experiment.from_json(json.loads(json.dumps(chosen.to_json())), where="here") == chosen


def test_learning_rates_go_as_they_are_described():
    def rates(**options):
        training = Training(steps=100, learning_rate=1.0, **options)
        return [round(learning_rate(step, training), 3) for step in (0, 10, 30, 50, 99)]

    assert rates(schedule="constant") == [1, 1, 1, 1, 1]
    assert rates(schedule="constant", warmup_steps=20) == [0.05, 0.55, 1, 1, 1]
    assert rates(schedule="tenth-half-way") == [1, 1, 1, 0.1, 0.1]
    assert rates(schedule="cosine") == [1, 0.976, 0.794, 0.5, 0.0]
    assert rates(schedule="one-cycle") == [0.04, 0.28, 1.0, 0.812, 0.001]
    halving = Training(steps=150_000, learning_rate=4e-4, schedule="halving", warmup_steps=1000)
    assert [learning_rate(step, halving) for step in (0, 50_000, 100_000)] == pytest.approx([4e-7, 2e-4, 1e-4])


def half_cosine(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


# Relative learning rates at steps 0, 10 and 19 of 20.
CLOSED_FORMS = {
    "constant": ({"schedule": "constant"}, [1, 1, 1]),
    "warm-up": ({"schedule": "constant", "warmup_steps": 16}, [1 / 16, 11 / 16, 1]),
    "cosine": ({"schedule": "cosine"}, [1, half_cosine(10 / 20), half_cosine(19 / 20)]),
    "cosine after warm-up": (
        {"schedule": "cosine", "warmup_steps": 4}, [1 / 4, half_cosine(6 / 16), half_cosine(15 / 16)],
    ),
    "one-cycle": ({"schedule": "one-cycle"}, [0.04, half_cosine(4 / 14), half_cosine(13 / 14)]),
    "tenth-half-way": ({"schedule": "tenth-half-way"}, [1, 0.1, 0.1]),
    "halving": ({"schedule": "halving"}, [1, 2 ** -(10 / 50_000), 2 ** -(19 / 50_000)]),
}  # fmt: skip


def test_every_schedule_has_a_closed_form():
    assert {options["schedule"] for options, _ in CLOSED_FORMS.values()} == set(get_args(Schedule))


@pytest.mark.parametrize(("options", "closed_form"), CLOSED_FORMS.values(), ids=CLOSED_FORMS)
def test_every_optimizer_step_uses_the_learning_rate_of_its_schedule(tmp_path, monkeypatch, options, closed_form):
    monkeypatch.setattr(type(SMOKE.task), "score", lambda *_: {"score": 0.0})
    monkeypatch.setattr(type(SMOKE.task), "evaluate", lambda *_: {})
    training = replace(SMOKE.training, steps=20, learning_rate=3e-3, checkpoint_every=20, **options)
    rates = list[float]()
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    try:
        start(replace(SMOKE, training=training), tmp_path / "run", silent=True, accelerator="cpu")
    finally:
        hook.remove()
    assert rates == [learning_rate(step, training) for step in range(20)]
    assert [rates[step] / 3e-3 for step in (0, 10, 19)] == pytest.approx(closed_form)


def test_averaged_weights_follow_the_others_slowly(tmp_path):
    averaged = replace(SMOKE, training=replace(SMOKE.training, average=0.5))
    start(averaged, tmp_path / "run", silent=True, accelerator="cpu")
    (newest,) = RunDirectory(tmp_path / "run").checkpoints()[-1:]
    kept = load_file(newest / "tensors.safetensors")
    final = load_file(tmp_path / "run/checkpoints/final/model.safetensors")
    name = next(iter(final))
    assert torch.equal(kept[f"average.module.{name}"], final[name])
    assert not torch.equal(kept[f"network.{name}"], final[name])


def test_curves_are_written_for_tensorboard_if_asked(tmp_path):
    start(SMOKE, tmp_path / "run", silent=True, accelerator="cpu", tensorboard=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    expected = {row["step"]: row["score"] for row in RunDirectory(tmp_path / "run").metrics}
    assert {event.step: event.value for event in curves.Scalars("score")} == pytest.approx(expected)


def test_an_error_in_the_data_is_an_error_of_the_training():
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("no such step")
        return step

    steps = prefetch(lambda: map(make, range(5)))
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(ValueError, match="no such step"):
        next(steps)


# What goes wrong


def arguments_of(described: dict) -> dict:
    """The constructor arguments of the network of a config."""
    return described["task"]["network"]["arguments"]


def spoiled(unbroken: Path, tmp_path: Path, change) -> Path:
    described = json.loads((unbroken / "config.json").read_text())
    change(described)
    (tmp_path / "config.json").write_text(json.dumps(described))
    return tmp_path / "config.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["training"].update(stpes=3), "training: there is no field 'stpes'; did you mean 'steps'?"),
        (
            lambda c: c["task"]["network"]["arguments"].update(dimm=3),
            "there is no argument 'dimm'; did you mean 'dim'?",
        ),
        (lambda c: c["task"].update(qqq=3), "task: there is no field 'qqq'; fields are network"),
        (lambda c: c["training"].update(steps="many"), "training: steps must be a whole number; got 'many'"),
        (lambda c: c["training"].update(steps=True), "training: steps must be a whole number; got True"),
        (lambda c: c["training"].update(steps=0), "training: steps must be at least 1; got 0"),
        (lambda c: c["training"].update(average=1.0), "average must be at least 0 and below 1; got 1.0"),
        (lambda c: c["training"].update(learning_rate=0), "learning_rate must be above 0; got 0"),
        (lambda c: arguments_of(c).update(pool="median"), "network: pool must be one of 'picaso'"),
        (lambda c: c["task"]["network"].update({"class": "Painter"}), "network: there is no module 'Painter'"),
        (lambda c: c["task"].update(network=3), 'network must be an object with "class" and "arguments"; got 3'),
        (lambda c: c.update(format_version=3), "has format version 3; this picaset reads versions 1 to 2"),
        (
            lambda c: c["task"].update(sizes=[600, 300]),
            "task: sizes must be (smallest, largest) with 1 <= smallest <= largest; got (600, 300)",
        ),
        (lambda c: c["task"].update(num_benchmark_sets=0), "num_benchmark_sets must be at least 1; got 0"),
        (lambda c: c["task"].update(small_share=2), "small_share must be from 0 to 1; got 2"),
        (
            lambda c: c["task"]["network"]["arguments"].update(num_heads=3),
            "num_heads must divide dim; got num_heads=3 and dim=16",
        ),
        (lambda c: c["training"].update(clip=-1), "clip must not be negative; got -1"),
        (lambda c: c["training"].update(weight_decay=-1), "weight_decay must not be negative; got -1"),
        (lambda c: c.update(task=[]), "task must be an object with fields; got []"),
        (lambda c: c["task"].update(sizes=[3]), "task: sizes must be tuple"),
        (lambda c: c.update(kind="painting"), "there is no task 'painting'; tasks are clustering"),
        (lambda c: c.update(extra=1), "there is no field 'extra'; fields are format"),
        (lambda c: c.pop("task"), "the field 'task' is missing"),
        (lambda c: c.update(format="other"), 'does not describe an experiment: "format" must be "picaset-experiment"'),
    ],
)
def test_a_config_that_does_not_fit_is_one_clear_line(unbroken, tmp_path, capsys, change, message):
    path = spoiled(unbroken, tmp_path, change)
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "runs")]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_config_that_is_not_json_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{")
    assert main(["train", "--config", str(tmp_path / "config.json")]) == 1
    assert "is not JSON" in capsys.readouterr().err


def test_an_unknown_name_is_refused_with_the_closest(capsys):
    assert main(["train", "clustering-ae32-bp-sa"]) == 1
    assert (
        "there is no experiment 'clustering-ae32-bp-sa'; did you mean 'clustering-ae32-pb-sa'?"
        in capsys.readouterr().err
    )


def test_a_name_and_a_resumed_run_do_not_go_together(capsys):
    assert main(["train", "clustering-ours", "--resume", "runs/x"]) == 1
    assert "give one of: the name of an experiment, --config FILE, --resume DIRECTORY." in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path)]) == 1
    assert f"{tmp_path} is not a run directory: it has no config.json." in capsys.readouterr().err


def test_a_file_is_no_run(tmp_path, capsys):
    (tmp_path / "config.json").touch()
    assert main(["train", "--resume", str(tmp_path / "config.json")]) == 1
    assert "config.json is a file; a run is a folder with a config.json in it." in capsys.readouterr().err


def test_a_process_that_waits_for_the_first_one_does_not_wait_for_ever(tmp_path):
    with pytest.raises(
        ValueError, match=r"config.json was not created by the first process within 0.1 s; see the output of that"
    ):
        wait_for(tmp_path / "config.json", seconds=0.1)


def test_an_existing_run_is_not_overwritten_and_reported_before_data_is_generated(unbroken, monkeypatch):
    before = bits(unbroken)
    monkeypatch.setattr(type(SMOKE.task), "batch", None)
    with pytest.raises(ValueError, match="is not empty; resume it with: picaset train --resume"):
        start(SMOKE, unbroken, silent=True)
    assert bits(unbroken) == before


def test_the_command_reports_an_existing_run_before_data_is_generated(unbroken, tmp_path, monkeypatch, capsys):
    for name in ("batch", "describe_data"):
        monkeypatch.setattr(type(SMOKE.task), name, None)
    shutil.copytree(unbroken, tmp_path / run_name(SMOKE.name, SMOKE.profile, 0))
    command = ["train", SMOKE.name, "--profile", SMOKE.profile, "--out", str(tmp_path)]
    assert main(command) == 1
    assert "is not empty; resume it with" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file is a file; a run is a folder"):
        RunDirectory.check_new(tmp_path / "file")


@pytest.mark.parametrize("json", [False, True])
def test_only_the_first_process_speaks(json, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("picaset.cli.train.start", lambda *given, **options: {"best_score": 1.0, "seconds": 2.0})
    command = ["train", SMOKE.name, "--profile", SMOKE.profile, "--out", str(tmp_path), *(["--json"] * json)]
    for rank, lines in (("0", 1 if json else 2), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert main(command) == 0
        assert len(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.parametrize("error", [ValueError, MissingDataError])
def test_data_errors_of_another_process_reach_the_user(error, unbroken, tmp_path, monkeypatch):
    """torch passes the traceback of a child process as text."""
    path = half_a_run(tmp_path, monkeypatch)

    def launch(*given, **options):
        try:
            raise error("the data is gone")
        except error:
            raise ProcessRaisedException("\n\n" + traceback.format_exc(), 0, 1) from None

    monkeypatch.setattr("lightning_fabric.Fabric.launch", launch)
    with pytest.raises(ValueError, match=r"^the data is gone$"):
        resume(path, devices=2, silent=True, accelerator="cpu")


def half_a_run(tmp_path: Path, monkeypatch) -> Path:
    """A run that was killed before its end, with two checkpoints."""

    def killed(*given, **keywords):
        raise SystemExit

    monkeypatch.setattr(loop, "finish", killed)
    with pytest.raises(SystemExit):
        start(SMOKE, tmp_path / "run", silent=True, accelerator="cpu")
    monkeypatch.undo()
    return tmp_path / "run"


@pytest.mark.parametrize("damaged", ["tensors.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_loaded(
    unbroken, tmp_path, monkeypatch, capsys, damaged
):
    path = half_a_run(tmp_path, monkeypatch)
    newest = RunDirectory(path).checkpoints()[-1] / damaged
    newest.write_bytes(newest.read_bytes()[:20])
    resume(path, accelerator="cpu")
    assert "step-00000020 is damaged" in capsys.readouterr().out
    assert bits(path) == bits(unbroken)


def test_a_checkpoint_of_another_network_is_one_clear_line(tmp_path, monkeypatch, capsys):
    path = half_a_run(tmp_path, monkeypatch)
    described = json.loads((path / "config.json").read_text())
    described["task"]["network"]["arguments"]["dim"] = 32
    (path / "config.json").write_text(json.dumps(described))
    assert main(["train", "--resume", str(path), "--json"]) == 1
    assert "has checkpoints of another network" in (shown := capsys.readouterr().err)
    assert "was its config.json changed?" in shown


def test_half_written_files_of_a_killed_run_are_removed(unbroken, tmp_path, monkeypatch):
    path = half_a_run(tmp_path, monkeypatch)
    (path / "checkpoints/.step-00000099.tmp").mkdir()
    (path / ".result.json.17.tmp").write_text("{")
    resume(path, silent=True, accelerator="cpu")
    assert not list(path.rglob("*.tmp"))
    assert bits(path) == bits(unbroken)


def test_settings_of_a_profile_do_not_go_with_a_config(capsys):
    assert main(["train", "--resume", "runs/x", "--seed", "3"]) == 1
    assert "--profile, --seed and --steps cannot be combined with --config or --resume" in capsys.readouterr().err


def test_another_number_of_steps_is_another_run(tmp_path):
    assert main(["train", SMOKE.name, "--profile", "smoke", "--steps", "2", "--out", str(tmp_path), "--json"]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["clustering-ae32-pb-sa-smoke-2-steps-seed0"]


def test_two_devices_stop_together_and_leave_a_checkpoint(tmp_path):
    command = [sys.executable, "-m", "picaset", "train", SMOKE.name, "--profile", "smoke", "--steps", "4000"]
    command += ["--out", str(tmp_path), "--devices", "2", "--threads", "1", "--accelerator", "cpu"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    path = tmp_path / "clustering-ae32-pb-sa-smoke-4000-steps-seed0"
    wait_for_checkpoint(path, process, seconds=120)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    # The processes may have said at which step before this one, which only waits for them, is interrupted.
    assert re.search(rf"picaset: stopped.*; resume with: picaset train --resume {re.escape(str(path))}", shown)
    assert "Traceback" not in shown
    assert newest(path)
    assert RunDirectory(path).result is None


def test_without_any_whole_checkpoint_nothing_is_touched(tmp_path, monkeypatch, capsys):
    path = half_a_run(tmp_path, monkeypatch)
    for checkpoint in RunDirectory(path).checkpoints():
        (checkpoint / "tensors.safetensors").write_bytes(b"")
    before = sorted(path.rglob("*"))
    assert main(["train", "--resume", str(path)]) == 1
    assert "is damaged" in (shown := capsys.readouterr().err)
    assert "there is no older one; start again in another folder." in shown
    assert sorted(path.rglob("*")) == before


def test_a_full_disk_is_one_clear_line_and_earlier_checkpoints_stay(unbroken, tmp_path, monkeypatch, capsys):
    original = run_directory.synced_write

    def full_after_two_checkpoints(path, content, **options):
        if "step-00000015" in str(path):
            path.write_bytes(content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(path, content, **options)

    monkeypatch.setattr(run_directory, "synced_write", full_after_two_checkpoints)
    arguments = ["train", SMOKE.name, "--profile", "smoke", "--out", str(tmp_path), "--accelerator", "cpu", "--json"]
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "No space left on device; the checkpoint was not written, earlier ones are intact" in shown
    assert "Traceback" not in shown
    (path,) = tmp_path.iterdir()
    assert [entry.name for entry in sorted((path / "checkpoints").iterdir())] == [
        "best",
        "step-00000005",
        "step-00000010",
    ]
    monkeypatch.undo()
    resume(path, silent=True, accelerator="cpu")
    assert bits(path) == bits(unbroken)
