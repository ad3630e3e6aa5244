"""Experiments that are defined outside the package are trained, resumed, evaluated and reported."""

import json
import shutil
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import picaset
from picaset import SetBatch
from picaset.cli import main
from picaset.lab.experiments import experiment
from picaset.lab.tasks import plugins
from picaset.lab.tasks.plugins import UnknownTask
from picaset.lab.tasks.task import PLUGIN_TASKS
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.loop import StoppedError, every_nth

pytestmark = pytest.mark.as_installed

ROOT = Path(__file__).parent.parent
RUN = "runs/extremes-picaso-smoke-seed0"
NAME = "own_experiment:experiment"
KIND = "own_experiment:Extremes"


def forget() -> None:
    """Undo the import, as a new process would."""
    sys.modules.pop("own_experiment", None)
    PLUGIN_TASKS.pop(KIND, None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the example and no trace of the clone."""
    shutil.copy(ROOT / "examples/own_experiment.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    forget()
    yield tmp_path
    forget()


@pytest.fixture
def trained(folder):
    assert main(["train", NAME, "--profile", "smoke", "--threads", "1", "--json"]) == 0
    forget()
    return folder


def test_the_documents_show_the_example_which_has_forty_lines():
    source = (ROOT / "examples/own_experiment.py").read_text()
    assert f"```python\n{source}```" in (ROOT / "docs/tools.md").read_text()
    assert len([line for line in source.splitlines() if line.strip()]) <= 40


def test_an_experiment_of_ones_own_is_trained_resumed_evaluated_and_reported(trained, capsys):
    finished = json.loads((trained / RUN / "result.json").read_text())
    (trained / RUN / "result.json").unlink()  # as if it had been stopped after its last checkpoint
    assert main(["train", NAME, "--resume", RUN, "--threads", "1", "--json"]) == 0
    resumed = json.loads((trained / RUN / "result.json").read_text())
    assert {**resumed, "seconds": 0} == {**finished, "seconds": 0}
    forget()
    capsys.readouterr()
    assert main(["evaluate", RUN, "--experiment", NAME, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(finished["accuracy"])
    forget()
    assert main(["report"]) == 0
    shown = capsys.readouterr()
    assert "Extremes" in shown.out
    assert f"{finished['accuracy']:.3f}" in shown.out
    assert shown.err == ""
    page = (trained / "report/index.html").read_text()
    assert "A task defined in own_experiment." in page
    assert "<svg" in page


def content_of(path: Path) -> object:
    """Return the bytes of a file, or its values without the seconds that the training took."""
    return json.loads(path.read_text()) | {"seconds": 0} if path.name == "state.json" else path.read_bytes()


def test_an_interrupted_experiment_of_ones_own_ends_with_the_bytes_of_an_uninterrupted_one(trained):
    run = trained / RUN
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "best", "final", "step-00000010", "step-00000020"
    ]  # fmt: skip
    names = ["checkpoints/final", "checkpoints/best", "checkpoints/step-00000020"]
    finished = {path: content_of(path) for name in names for path in sorted((run / name).iterdir())}
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").unlink()
    for name in ("checkpoints/final", "checkpoints/step-00000020"):  # as if it had been killed after step 10
        shutil.rmtree(run / name)
    assert main(["train", NAME, "--resume", RUN, "--threads", "1", "--json"]) == 0
    assert {path: content_of(path) for path in finished} == finished
    assert json.loads((run / "result.json").read_text()) | {"seconds": 0} == result | {"seconds": 0}


def test_an_experiment_may_have_sets_of_different_sizes(folder):
    source = (folder / "own_experiment.py").read_text()
    source = source.replace("return self.draw(1_000_000", "points, labels = self.draw(1_000_000").replace(
        "+ step, num_examples)", "+ step, num_examples)\n        sets = [p[: 5 + i % 7] for i, p in enumerate(points)]"
        "\n        return SetBatch.from_list(sets), labels",
    ).replace("import Picaso\n", "import Picaso, SetBatch\n")  # fmt: skip
    (folder / "own_experiment.py").write_text(source)
    assert main(["train", NAME, "--profile", "smoke", "--threads", "1", "--json"]) == 0
    assert (folder / RUN / "result.json").is_file()


@pytest.mark.parametrize("weights", [None, torch.arange(15.0)])
def test_processes_share_the_sets_of_a_batch(weights):
    sets = SetBatch.from_list([torch.randn(size, 3) for size in (4, 0, 2, 5, 1, 3)]).with_weights(weights)
    for first in range(4):
        share = every_nth(sets, first, 4)
        expected = sets.to_list()[first::4]
        assert [torch.equal(*pair) for pair in zip(share, expected, strict=True)] == [True] * len(expected)
        if weights is not None:
            assert torch.equal(share.weights, weights[sets.owners % 4 == first])


def test_a_foreign_run_is_read_without_importing_anything(trained, capsys):
    read = Experiment.read(trained / RUN / "config.json")
    assert isinstance(read.task, UnknownTask)
    assert "own_experiment" not in sys.modules
    assert read.to_json() == json.loads((trained / RUN / "config.json").read_text())
    for command in (["evaluate", RUN], ["train", "--config", f"{RUN}/config.json", "--out", "again"]):
        assert main(command) == 1
        assert f"the task {KIND} is not known here; name its experiment as MODULE:FUNCTION" in capsys.readouterr().err


def test_foreign_and_broken_runs_do_not_stop_a_reproduction(trained, capsys, monkeypatch):
    (trained / "runs/broken").mkdir()
    (trained / "runs/broken/config.json").write_text("{")
    shutil.copy(trained / RUN / "result.json", trained / "runs/broken/result.json")
    (trained / "few").mkdir()
    for record in (ROOT / "results/runs").glob("clustering-ours-quick-*"):
        (trained / "few" / record.name).symlink_to(record)
    assert main(["reproduce", "table2", "--records", "few"]) == 0
    shown = capsys.readouterr()
    assert "clustering-ours, seed 0: from few/clustering-ours-quick-seed0" in shown.out
    assert "picaset: skipped runs/broken: config.json is not JSON" in shown.err


def test_installed_packages_announce_experiments(trained, monkeypatch, capsys):
    good = EntryPoint("extremes", NAME, plugins.GROUP)
    broken = EntryPoint("broken", "no_such_module:experiment", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [good, broken])
    assert isinstance(Experiment.read(trained / RUN / "config.json").task, PLUGIN_TASKS[KIND])
    assert experiment("extremes", profile="smoke").name == "extremes-picaso"
    assert main(["experiments"]) == 0
    shown = capsys.readouterr()
    assert "extremes-picaso" in shown.out
    assert "picaset: skipped broken: ValueError" in shown.err
    assert main(["evaluate", RUN, "--json"]) == 0


def test_a_package_that_cannot_be_imported_does_not_stop_a_report(trained, monkeypatch, capsys):
    (trained / "own_experiment.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(trained)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint("extremes", NAME, plugins.GROUP)])
    assert main(["report"]) == 0
    assert "picaset: own_experiment:experiment cannot be imported: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("..relative:experiment", "an experiment must be MODULE:FUNCTION, such as my_experiments:drawings; got '..rel"),
        ("no_such_module:experiment", "there is no module no_such_module; run this in its folder, or install"),
        ("own_experiment:experimet", "own_experiment: there is no name 'experimet'; did you mean 'experiment'?"),
        ("own_experiment:RESULT", "a function of a profile and a seed that returns an Experiment; it is of type int."),
        ("own_experiment:number", "returns an Experiment; it returned int."),
        ("extremes", "picaset experiments: there is no experiment 'extremes'"),
    ],
)  # fmt: skip
def test_an_experiment_that_cannot_be_found_is_reported_in_one_line(folder, capsys, name, message):
    source = (folder / "own_experiment.py").read_text()
    (folder / "own_experiment.py").write_text(source + "\nRESULT = 3\n\ndef number(profile, seed):\n    return 3\n")
    assert main(["train", name, "--profile", "smoke"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_stopped_experiment_of_ones_own_says_how_to_resume_it(folder, capsys, monkeypatch):
    def stop(*arguments, **options):
        raise StoppedError(f"stopped after step 3; resume with: picaset train --resume {RUN}")

    monkeypatch.setattr("picaset.cli.train.start", stop)
    assert main(["train", NAME, "--profile", "smoke"]) == 130
    assert f"resume with: picaset train {NAME} --resume {RUN}" in capsys.readouterr().err


def test_a_name_without_a_module_does_not_go_with_resume(trained, capsys):
    assert main(["train", "clustering-ours", "--resume", RUN]) == 1
    assert "give one of: the name of an experiment, --config FILE, --resume DIRECTORY." in capsys.readouterr().err


def test_the_records_of_the_imported_clone_are_reported_in_any_folder(folder, capsys, monkeypatch):
    few = next((ROOT / "results/runs").glob("clustering-ours-quick-*"))
    clone = folder / "clone"
    shutil.copytree(few, clone / "results/runs" / few.name)
    monkeypatch.setattr(picaset, "__file__", str(clone / "picaset/__init__.py"))
    assert main(["report"]) == 0
    assert "Shown from 1 committed record in" in capsys.readouterr().out


def test_without_a_clone_the_commands_say_how_to_train(folder, capsys, monkeypatch):
    monkeypatch.setattr(picaset, "__file__", str(folder / "site-packages/picaset/__init__.py"))
    assert main(["report"]) == 1
    assert "train one with: picaset train clustering-ours --profile smoke" in capsys.readouterr().err
    assert main(["reproduce", "table3"]) == 1
    assert "train with: picaset reproduce --profile quick --train" in capsys.readouterr().err
