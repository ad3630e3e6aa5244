"""Every example and command in the documents runs, and every file that they name exists."""

import doctest
import json
import re
import runpy
import shlex
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import clusterer_tables, performance_tables
from picaset.cli import main
from picaset.lab.reports.records import find_records
from picaset.lab.reports.reproduction import all_tables, tables_to_markdown
from tests.test_commands import EXAMPLES

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (name_of(path), code) for path in DOCUMENTS for tag, code in BLOCK.findall(path.read_text()) if tag == language
    ]


COMMANDS = [
    (name, line.partition("#")[0].strip())
    for name, code in blocks("bash")
    for line in code.splitlines()
    if line.partition("#")[0].strip()
]
PYTHON = [(name, code) for name, code in blocks("python") if "import ray" not in code]  # these run in test_ray.py


def test_the_readme_gives_the_two_commands():
    assert {"make run", "make test"} <= {command for name, command in COMMANDS if name == "README.md"}


def picaset_commands(path: Path) -> tuple[str, ...]:
    return tuple(command for name, command in COMMANDS if name == name_of(path) and command.startswith("picaset "))


HELP_TEXTS = {tuple(line.partition("#")[0].strip() for line in examples) for examples in EXAMPLES.values()}
# A guide that shows the first commands of another document, or the examples of a help text, needs no run of its own.
SEQUENCES = sorted(set(map(picaset_commands, DOCUMENTS)) | HELP_TEXTS, reverse=True)
SEQUENCES = [these for these, before in zip(SEQUENCES, [(), *SEQUENCES], strict=False) if before[: len(these)] != these]
SEQUENCES = [commands for commands in SEQUENCES if commands not in HELP_TEXTS]


@pytest.mark.parametrize("commands", SEQUENCES, ids=lambda commands: commands[0])
def test_the_picaset_commands_of_a_document_work_one_after_the_other(commands: tuple[str, ...], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command


OTHERS = [(name, command) for name, command in COMMANDS if not command.startswith("picaset ")]


@pytest.mark.parametrize(("name", "command"), OTHERS, ids=[f"{name}: {command}" for name, command in OTHERS])
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # another test may have imported it
def test_every_other_command_in_the_documents_works(name: str, command: str, monkeypatch):
    program, *arguments = shlex.split(command)
    if program == "make":
        # This test runs inside make test, so only that the target exists is checked.
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)
    elif program == "python":
        monkeypatch.chdir(ROOT)
        run = partial(runpy.run_module, alter_sys=True) if arguments[0] == "-m" else runpy.run_path
        name, *options = (argument for argument in arguments if argument != "-m")
        monkeypatch.setattr(sys, "argv", [name, *options, "--help"])
        monkeypatch.syspath_prepend(str((ROOT / name).parent))
        with pytest.raises(SystemExit) as stopped:
            run(name, run_name="__main__")
        assert stopped.value.code in (None, 0)
    else:
        assert program in ("git", "cd", "pip", ".venv/bin/pre-commit"), (
            f"{name} prints a command that no test runs: {command}"
        )


@pytest.mark.parametrize(
    ("name", "code"),
    # Exporting traces the code, which the shape checks break.
    [pytest.param(*example, marks=[pytest.mark.as_installed] * ("export_onnx" in example[1])) for example in PYTHON],
    ids=[f"{name} {index}" for index, (name, _) in enumerate(PYTHON)],
)
def test_every_python_example_in_the_documents_runs(name: str, code: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, {}, name, name, 0)
        assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0
    else:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})


def test_the_tables_in_the_documents_are_those_of_the_records():
    records = find_records([ROOT / "results/runs"])
    assert (ROOT / "docs/tables.md").read_text() == tables_to_markdown(all_tables(records, [ROOT / "results/runs"]))


def test_the_numbers_of_discarded_variants_in_the_documents_are_those_of_their_records():
    document = " ".join((ROOT / "docs/reproduction.md").read_text().split())

    def result(run: str) -> dict[str, Any]:
        return json.loads((ROOT / "results" / run / "result.json").read_text())

    def novel(run: str) -> str:
        return f"{100 * result(run)['accuracy']['novel']:.1f}"

    def precision(run: str, distance: str) -> str:
        return f"{100 * result(run)['average_precision'][distance]:.1f}"

    for split in ("azimuth", "elevation"):
        assert f"{novel(f'tried/viewpoints-{split}-ours-stretched')} of novel {split}s" in document
    plain = novel("runs/viewpoints-azimuth-ours-quick-seed0"), novel("tried/viewpoints-elevation-ours-plain")
    assert f"not stretched gave {' and '.join(plain)}" in document
    assert f"diverges: {precision('tried/scenes-idspn-likelihood-uncut', 'inf')} at any distance" in document
    slots = [precision(f"tried/scenes-slot-attention-likelihood-rate-{rate}", "0.5") for rate in ("0.001", "0.002")]
    assert f"with {slots[0]} within 0.5 at 1e-3 and {slots[1]} at 2e-3" in document
    assert f"PB3 has {precision('tried/scenes-pb3-likelihood-rate-0.001', '0.5')} at 1e-3" in document


def test_the_results_in_the_readme_are_those_of_the_records():
    def rows(benchmark: str) -> list[dict[str, Any]]:
        (path,) = (ROOT / "results").glob(f"{benchmark}__*.json")
        return json.loads(path.read_text())["rows"]

    def only(benchmark: str, /, **values: object) -> dict[str, Any]:
        return next(row for row in rows(benchmark) if all(row.get(key) == value for key, value in values.items()))

    def auroc(pool: str) -> float:
        paths = (ROOT / "results/runs").glob(f"odd-one-out-celeba-sa-{pool}-quick-seed?/result.json")
        return statistics.mean(json.loads(path.read_text())["test"]["auroc"] for path in paths)

    ours = json.loads((ROOT / "results/runs/clustering-ours-quick-seed0/result.json").read_text())
    shifted = next(move["log_likelihood"]["0"] for move in ours["moves"] if move["shift"] == -12)
    canonical = [
        next(move["log_likelihood"]["0"] for move in json.loads(path.read_text())["moves"] if move["shift"] == -12)
        for path in (ROOT / "results/runs").glob("clustering-set-transformer-canonical-quick-seed?/result.json")
    ]
    shapes = json.loads(clusterer_tables.RECORD.read_text())["parts"]
    speed = {(row["method"], row["groups"]): row["milliseconds"] for row in shapes["speed 2"]}
    aris = {row["method"]: row["ari"] for who in ("ours", "others") for row in shapes[f"elongated 2, {who}"]}
    detected, within = (
        {
            size: max(
                row["top1"]
                for row in rows("odd_one_out")
                if row["kind"] == "along lines"
                and row["set_size"] == size
                and (row["name"] == "SetAnomalyDetector") == is_ours
            )
            for size in (4, 8, 48)
        }
        for is_ours in (True, False)
    )
    large = only("pooling", sizes=[1, 1_000_000, 64, 4, 4], kind="forward+backward")
    packed, padded = (
        only("packed", name=name, steps=1)["forward+backward"] for name in ("ours, packed", "textbook, padded")
    )
    expected = [
        (f"**{speed['ours, one call', 5000]:.1f}**", f"{speed['scikit-learn, all types', 50]:.0f}"),
        (f"**{shifted:.3f}**", f"{statistics.mean(canonical):.3f}"),
        (f"**{detected[48]:.2f}**", f"{within[48]:.2f}"),
        (f"{auroc('pb'):.3f}", f"{auroc('pma'):.3f}"),
        (f"**{large['ours']:.2f}**", f"{min(large['careful'], large['careful, compiled']):.1f}"),
        (f"**{1e3 * packed:.0f}**", f"{1e3 * padded:.0f}"),
    ]
    table = (ROOT / "README.md").read_text().partition("## Results")[2]
    assert f"index is {aris['ours']:.3f} and {aris['scikit-learn, all types']:.3f}" in table
    assert f"Fitted one at a time, a group takes picaset {speed['ours, one by one', 50]:.0f} milliseconds" in table
    cells = [tuple(line.split(" | ")[1:3]) for line in table.splitlines() if line.startswith("| ")][1:]
    assert cells == expected
    stated = f"In sets of 8 the shares are {detected[8]:.2f} and {within[8]:.2f}, in sets of 4 {detected[4]:.2f} and "
    assert stated + f"{within[4]:.2f};" in " ".join(table.split())


def test_the_tables_of_the_clustering_page_are_those_of_the_record():
    text = clusterer_tables.DOCUMENT.read_text()
    assert clusterer_tables.insert_tables(text) == text


def test_the_tables_of_the_performance_page_and_the_times_in_the_readme_are_those_of_the_records():
    text, readme = (path.read_text() for path in (performance_tables.DOCUMENT, performance_tables.README))
    assert performance_tables.fill_document(text) == text
    assert performance_tables.fill_readme(readme) == readme
    marked = {name for _, name in performance_tables.MARKED.findall(text)}
    assert marked == set(performance_tables.SECTIONS)


def test_another_record_changes_the_tables_of_the_performance_page(monkeypatch, tmp_path):
    for path in performance_tables.RESULTS.glob("*.json"):
        text = path.read_text()
        if path.name.startswith("pooling__"):
            record = json.loads(text)
            record["rows"][0]["ours"] = 0.012345
            text = json.dumps(record)
            path = path.with_name("pooling__other-machine__2027-01.json")
        (tmp_path / path.name).write_text(text)
    monkeypatch.setattr(performance_tables, "RESULTS", tmp_path)
    filled = performance_tables.fill_document(performance_tables.DOCUMENT.read_text())
    assert "| 12.3 |" in filled
    assert "(../results/pooling__other-machine__2027-01.json)" in filled


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_file_that_a_document_links_to_exists(path: Path):
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_tree_in_the_architecture_names_every_part_of_the_package():
    tree = (ROOT / "docs/architecture.md").read_text()
    for part in sorted(path.name for path in (ROOT / "picaset").iterdir() if not path.name.startswith(("_", "."))):
        assert part in tree, f"docs/architecture.md does not say what picaset/{part} is"


JOURNEY_STEPS = re.findall(r"^- (`\w[\w/]*\.py`.*)$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("step", JOURNEY_STEPS)
def test_every_function_that_a_journey_names_is_in_its_file(step: str):
    source = ""
    for name in re.findall(r"`([^`]+)`", step):
        if name.endswith(".py"):
            source = (ROOT / "picaset" / name).read_text()
        else:
            assert all(re.search(rf"\b{part}\b", source) for part in name.split(".")), f"{name} is not there: {step}"
