"""The command line, as it is typed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from picaset import DeepSets, MeanPool, Picaso, PicasoPool, SetTransformer
from picaset.cli import COMMANDS, main, summary
from picaset.lab.experiments import EXPERIMENTS, TABLES, experiment
from picaset.networks.mixture_proposer import MixtureProposer

ROOT = Path(__file__).parent.parent
EXAMPLES = {
    name: [line.strip() for line in (command.__doc__ or "").partition("Examples:")[2].splitlines() if line.strip()]
    for name, command in COMMANDS.items()
}


def test_every_command_has_examples_in_its_help(capsys):
    for name, command in COMMANDS.items():
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)  # long lines are broken, inside a frame
        assert all(example in shown for example in EXAMPLES[name])
        assert "Examples:" in (command.__doc__ or "")


def test_the_general_help_has_the_summary_of_every_command_and_no_more(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert all(summary(command) in re.sub(r"[\s│]+", " ", shown) for command in COMMANDS.values())
    assert "Examples:" not in shown
    assert len(shown.splitlines()) < 4 * len(COMMANDS)


def test_a_mistake_refers_to_the_help_of_its_command_and_to_no_other(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["cluster", "points.csv", "--colums", "x"])
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert "--columns" in shown
    assert "picaset cluster --help" in shown
    assert "classify" not in shown


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.as_installed] * (name == "export")) for name in COMMANDS]
)
def test_the_examples_in_a_help_text_run_one_after_the_other(name: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "runs").mkdir(parents=True)
    for record in (ROOT / "results/runs").glob("clustering-ours-*"):  # tests/test_documents.py makes the whole page
        (tmp_path / "results" / "runs" / record.name).symlink_to(record)
    if name == "pool":
        np.save("points.npy", np.random.default_rng(0).normal(size=(1000, 2)).astype("float32"))
        Picaso(2, 3, dim=16, num_inducing=4, num_outputs=4).save_pretrained("network")
    if name == "export":
        DeepSets(2, 3, dim=4).save_pretrained("network")
        MeanPool().save_pretrained("pool")
        MixtureProposer(dim_in=2, dim=8, num_heads=2).save_pretrained("proposer")
    if name == "look":
        assert main(["train", "viewpoints-azimuth-pb3", "--profile", "smoke"]) == 0
    if name == "studio":  # would go on for ever; tests/test_studio.py starts it and ends it
        monkeypatch.setattr("picaset.studio.server.Server.run", lambda self, sockets: self.ready())
        monkeypatch.setattr("webbrowser.open", lambda address: True)
    if name == "reproduce":  # two rows of each table: all of them would take minutes
        for table, rows in TABLES.items():
            monkeypatch.setitem(TABLES, table, rows[:2])
    if name == "evaluate":
        assert main(shlex.split(EXAMPLES["train"][1])[1:]) == 0
    for example in EXAMPLES[name]:
        program, *arguments = shlex.split(example, comments=True)
        assert program == "picaset"
        assert main(arguments) == 0
        assert capsys.readouterr().out


def test_the_tour_draws_its_figure_and_shows_that_nothing_matters(tmp_path, capsys):
    assert main(["tour", "--out", str(tmp_path / "figures")]) == 0
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["template_walk.png", "template_walk.svg"]
    shown = capsys.readouterr().out
    assert "700 elements" in shown
    assert "padding filled with NaN" in shown
    assert shown.count("same") == 4
    assert "nan" not in shown


def test_the_tour_says_so_when_something_matters(tmp_path, capsys, monkeypatch):
    original = PicasoPool.forward

    def reading_the_order(self, elements, mask=None):
        first = elements[0, :1] if isinstance(elements, torch.Tensor) else elements[0][:1]
        return original(self, elements, mask) + first.nan_to_num().sum()

    monkeypatch.setattr(PicasoPool, "forward", reading_the_order)
    assert main(["tour", "--out", str(tmp_path)]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_a_file_is_pooled_like_the_set_it_holds(tmp_path, capsys):
    torch.manual_seed(0)
    network = Picaso(2, 3, dim=16, num_inducing=4, num_outputs=4).eval()
    network.save_pretrained(tmp_path / "network")
    points = torch.randn(1000, 2)
    np.save(tmp_path / "points.npy", points.numpy())
    arguments = [str(tmp_path / "points.npy"), "--checkpoint", str(tmp_path / "network"), "--chunk", "70", "--json"]
    assert main(["pool", *arguments, "--out", str(tmp_path / "pooled.npy")]) == 0
    printed = torch.tensor(json.loads(capsys.readouterr().out)["prediction"])
    torch.testing.assert_close(printed, network(points[None])[0].detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(printed, torch.from_numpy(np.load(tmp_path / "pooled.npy")), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("points", "encoder", "message"),
    [
        (
            np.array([[0.0, np.nan]]),
            "induced",
            "points.npy: elements must be finite; found NaN or infinity. Remove or replace it first.",
        ),
        (np.zeros((5, 3)), "induced", "Picaso: elements must have 2 features; those of "),
        (np.zeros((5, 2)), "self", "SelfAttention cannot stream"),
        (
            np.array([["a", "b"]]),
            "induced",
            "points.npy must hold numbers of shape (rows, columns); got <U1 of (1, 2).",
        ),
    ],
)
def test_a_file_that_cannot_be_pooled_is_one_line_and_no_traceback(points, encoder, message, tmp_path, capsys):
    Picaso(2, 3, dim=16, num_inducing=4, encoder=encoder).save_pretrained(tmp_path / "network")
    np.save(tmp_path / "points.npy", points)
    assert main(["pool", str(tmp_path / "points.npy"), "--checkpoint", str(tmp_path / "network")]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("picaset: ")
    assert shown.count("\n") == 1


def test_a_device_that_does_not_exist_is_refused(tmp_path, capsys):
    SetTransformer(2, 3, dim=16).save_pretrained(tmp_path / "network")
    assert main(["pool", "points.npy", "--checkpoint", str(tmp_path / "network"), "--device", "abacus"]) == 1
    message = "picaset pool: device must be one that PyTorch has on this machine, such as 'cpu'; got 'abacus'."
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_an_unknown_network_is_refused(tmp_path, capsys):
    SetTransformer(2, 3, dim=16).save_pretrained(tmp_path / "network")
    config = tmp_path / "network/config.json"
    config.write_text(config.read_text().replace("SetTransformer", "Unheard"))
    assert main(["pool", "points.npy", "--checkpoint", str(tmp_path / "network")]) == 1
    known = "DeepSets, MixtureNetwork, Picaso, SetTransformer"
    assert f"network must hold one of {known}; it holds a Unheard." in capsys.readouterr().err


def test_versions_come_as_json_too(capsys):
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torch"].startswith("2.")


def test_a_folder_that_cannot_be_written_is_one_line_and_no_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["tour", "--out", str(tmp_path / "file")]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"picaset: {tmp_path / 'file'} is a file; a folder is needed to write to.\n"
    assert shown.out == ""


def test_the_package_is_the_command():
    finished = subprocess.run([sys.executable, "-m", "picaset", "version"], capture_output=True, text=True)
    assert finished.stdout.startswith("picaset ")


def test_an_unknown_command_lists_the_known_ones():
    finished = subprocess.run([Path(sys.executable).parent / "picaset", "tuor"], capture_output=True, text=True)
    assert finished.returncode == 2
    assert "tour" in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stdout + finished.stderr


def test_ctrl_c_ends_cleanly(monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["version"], "run", interrupted)
    assert main(["version"]) == 130
    assert capsys.readouterr().err == "picaset: stopped\n"


def test_no_name_of_an_experiment_is_cut_in_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["experiments", "--profile", "smoke"]) == 0
    shown = capsys.readouterr().out.splitlines()
    named = {line.split()[0] for line in shown if line.strip()}
    assert {experiment(name, profile="smoke").name for name in EXPERIMENTS} <= named
