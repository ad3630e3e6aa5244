"""Content of the disk after a crash: a law for every writer, checked in every state that a crash may leave."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from picaset.files import atomic_write, create_folder, synced_write
from picaset.lab.experiments import experiment
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import Checkpoint, RunDirectory
from picaset.networks.set_networks import DeepSets
from tests.crashes import recorded, write_tree
from tests.test_training import bits

SMOKE = experiment("clustering-ae32-pb-sa", profile="smoke")
ENVIRONMENT = {"commit": "a", "hardware": "b", "data": "c"}


def test_an_atomic_write_syncs_the_content_renames_it_and_syncs_the_folder(tmp_path, monkeypatch):
    (tmp_path / "notes").write_text("old")
    with recorded(tmp_path, monkeypatch) as disk:
        with atomic_write(tmp_path / "notes") as temporary:
            temporary.write_text("a new text")
        disk.mark()
    name = disk.operations[0].removeprefix("fsync ")
    assert disk.operations == [f"fsync {name}", f"replace {name}", "fsync ."]
    for state, marks, tree in disk.states:
        assert tree["notes"] in ((b"a new text",) if marks else (b"old", b"a new text")), state


def test_a_synced_write_is_on_the_disk_when_it_returns_and_appends_without_touching_what_was_there(
    tmp_path, monkeypatch
):
    with recorded(tmp_path, monkeypatch) as disk:
        for line in (b"one\n", b"two\n"):
            synced_write(tmp_path / "lines", line, mode="ab")
            disk.mark()
    assert disk.operations == ["fsync lines", "fsync .", "fsync lines"]
    for state, marks, tree in disk.states:
        assert tree.get("lines", b"").startswith(b"one\ntwo\n"[: 4 * marks]), state


def test_a_new_folder_is_on_the_disk_with_its_parents(tmp_path, monkeypatch):
    with recorded(tmp_path, monkeypatch) as disk:
        create_folder(tmp_path / "a/b/c")
        disk.mark()
    assert all({"a", "a/b", "a/b/c"} <= tree.keys() for _, marks, tree in disk.states if marks)


def test_every_crash_while_a_run_is_created_leaves_a_run_or_none(tmp_path, monkeypatch):
    with recorded(tmp_path, monkeypatch) as disk:
        RunDirectory.create(tmp_path / "runs/one", SMOKE, ENVIRONMENT)
        disk.mark()
    for number, (state, marks, tree) in enumerate(disk.states):
        path = write_tree(tree, tmp_path.with_name(f"{tmp_path.name}-{number}")) / "runs/one"
        assert marks == 0 or (path / "config.json").is_file(), state
        if (path / "config.json").is_file():
            assert RunDirectory.open(path).experiment == SMOKE, state
            assert RunDirectory.open(path).environment == ENVIRONMENT, state


def test_every_crash_while_checkpoints_are_written_leaves_the_last_complete_one(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run", SMOKE, ENVIRONMENT)
    with recorded(tmp_path, monkeypatch) as disk:
        for step in range(1, 5):
            tensors = {"weight": torch.full((50,), float(step))}
            directory.save_checkpoint(Checkpoint(step, tensors, {"step": step, "best": 0.5, "seconds": 1.0}))
            disk.mark()
    for number, (state, marks, tree) in enumerate(disk.states):
        path = write_tree(tree, tmp_path.with_name(f"{tmp_path.name}-{number}")) / "run"
        checkpoint, problems = RunDirectory.open(path).last_checkpoint()
        assert (checkpoint.step if checkpoint else 0) in (marks, marks + 1), state
        assert checkpoint is None or bool((checkpoint.tensors["weight"] == checkpoint.step).all()), state
        assert problems == [], state


def test_metrics_are_on_the_disk_when_they_are_added_and_every_crash_leaves_whole_lines(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run", SMOKE, ENVIRONMENT)
    rows = [{"step": step, "score": -1.5 * step} for step in (1, 2, 3)]
    with recorded(tmp_path, monkeypatch) as disk:
        for row in rows:
            directory.add_metrics(row)
            disk.mark()
        directory.remove_metrics_after(2)
        disk.mark()
    for number, (state, marks, tree) in enumerate(disk.states):
        path = write_tree(tree, tmp_path.with_name(f"{tmp_path.name}-{number}")) / "run"
        expected = [rows[:2]] if marks == 4 else [rows[:marks], rows[: marks + 1], rows[:2]][: 3 if marks == 3 else 2]
        assert RunDirectory(path).metrics in expected, state


def test_every_crash_while_a_network_is_saved_again_leaves_a_network_that_loads(tmp_path, monkeypatch):
    old, new = DeepSets(2, 3, dim=4), DeepSets(2, 3, dim=4)
    old.save_pretrained(tmp_path / "best")
    with recorded(tmp_path, monkeypatch) as disk:
        new.save_pretrained(tmp_path / "best")
        disk.mark()
    points = torch.randn(1, 5, 2)
    for number, (state, marks, tree) in enumerate(disk.states):
        path = write_tree(tree, tmp_path.with_name(f"{tmp_path.name}-{number}")) / "best"
        loaded = DeepSets.from_pretrained(path)(points)
        assert any(torch.equal(loaded, network(points)) for network in ([new] if marks else [old, new])), state


@pytest.mark.as_installed
def test_a_run_resumes_from_any_crash_and_ends_with_the_same_bits(tmp_path, monkeypatch):
    """All states are read; the training is resumed from a few of them."""
    training = replace(SMOKE.training, steps=4, score_every=2, checkpoint_every=1, batch_size=2)
    short = replace(SMOKE, training=training, task=replace(SMOKE.task, num_benchmark_sets=2, num_scored_sets=2))
    place = tmp_path / "disk"
    place.mkdir()
    with recorded(place, monkeypatch) as disk:
        start(short, place / "run", silent=True, accelerator="cpu")
    expected = bits(place / "run")
    readable = list[Path]()
    for number, (state, _, tree) in enumerate(disk.states):
        path = write_tree(tree, tmp_path / str(number)) / "run"
        if not (path / "config.json").is_file():
            continue
        directory = RunDirectory.open(path)
        steps = [row["step"] for row in directory.metrics]
        checkpoint, _ = directory.last_checkpoint()
        assert [2, 4][: len(steps)] == steps, state
        assert checkpoint is None or checkpoint.step <= 4, state
        if directory.result is not None:
            assert (path / "checkpoints/final/model.safetensors").is_file(), state
        elif number % 40 == 7:
            readable.append(path)
        else:
            shutil.rmtree(path)
    assert len(readable) >= 3
    for path in readable:
        resume(path, silent=True, accelerator="cpu")
        assert bits(path) == expected, path
        assert not list(path.rglob("*.tmp"))
