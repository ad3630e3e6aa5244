"""``picaset classify``: scores, a model and the deciding rows from a table, and one line for every mistake."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from picaset.cli import main
from picaset.estimators import set_ensemble, set_estimators


@pytest.fixture(autouse=True)
def small_ensembles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(set_ensemble, "NUM_TREES", 5)
    monkeypatch.setattr(set_estimators, "NETWORK_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    write_bags("bags.csv")


def write_bags(path: str, *, count: int = 16, target: str = "class", **extra: object) -> None:
    """Write bags with a conspicuous row in every other one."""
    generator = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["bag", "label", "x", "y", *extra])
        for bag in range(count):
            for row in range(generator.integers(3, 6)):
                x, y = generator.normal(size=2)
                x += 20 * (row == 1) * (bag % 2)
                label = ("good", "bad")[bag % 2] if target == "class" else 1.5 * bag
                writer.writerow([f"bag {bag}", label, f"{x:.3f}", f"{y:.3f}", *extra.values()])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["classify", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_command_gives_scores_a_model_and_the_deciding_rows(capsys):
    code, out, err = run(
        capsys, "bags.csv", "--set", "bag", "--target", "label", "--folds", "2", "--json",
        "--save", "model", "--rows", "rows.csv", "--plot", "plot.png",
    )  # fmt: skip
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["features"] == ["x", "y"]
    assert result["scores"]["accuracy"][0] > 0.7
    assert result["predictions"][1]["target"] == "bad"
    assert Path("plot.png").stat().st_size > 1000
    with open("rows.csv") as file:
        rows = list(csv.DictReader(file))
    by_bag = [float(row["importance"]) for row in rows if row["bag"] == "bag 1"]
    assert sum(by_bag) == pytest.approx(1, abs=0.01)

    write_bags("new.csv", count=4)
    code, out, err = run(capsys, "new.csv", "--set", "bag", "--model", "model", "--columns", "x", "y", "--json")
    assert code == 0, err
    assert [entry["set"] for entry in json.loads(out)["predictions"]] == [f"bag {index}" for index in range(4)]


def test_labels_are_drawn_as_they_are_written_and_without_control_characters(capsys):
    text = Path("bags.csv").read_text().replace("good", "a\x1b[31m<b>").replace("bad", r"$\frac$[/x]")
    Path("bags.csv").write_text(text)
    options = ("--set", "bag", "--target", "label", "--folds", "2", "--json", "--plot", "plot.svg")
    code, _, err = run(capsys, "bags.csv", *options)
    assert (code, err) == (0, "")
    ElementTree.parse("plot.svg")  # a control character is not XML


def test_new_sets_are_predicted_in_the_same_command_and_printed_as_a_table(capsys):
    write_bags("new.csv", count=3, note="text")
    code, out, err = run(
        capsys, "bags.csv", "--set", "bag", "--target", "label", "--folds", "2", "--predict", "new.csv"
    )
    assert code == 0, err
    assert "3 sets, features x, y" in out
    assert "AUROC" in out
    assert "weights of the members, in log-odds: trees" in out
    assert "note: columns that are not features: note" in out


def test_numbers_are_predicted_where_the_target_is_not_a_class(capsys):
    write_bags("numbers.csv", count=30, target="number")
    code, out, _ = run(
        capsys, "numbers.csv", "--set", "bag", "--target", "label", "--folds", "2", "--json", "--save", "model",
        "--plot", "plot.png",
    )  # fmt: skip
    assert code == 0
    assert set(json.loads(out)["scores"]) == {"R2", "mean absolute error"}
    code, out, _ = run(capsys, "numbers.csv", "--set", "bag", "--model", "model", "--columns", "x", "y", "--json")
    assert isinstance(json.loads(out)["predictions"][0]["predicted"], float)


MESSY = "bag,label,x,y\nb1,yes,1,2\nb1,no,2,3\nb2,no,1,1\n"


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (
            ["bags.csv", "--set", "bog", "--target", "label"],
            None,
            "has no column 'bog'; its columns are bag, label, x, y",
        ),
        (["bags.csv", "--set", "bag", "--target", "lable"], None, "has no column 'lable'"),
        (["bgas.csv", "--set", "bag", "--target", "label"], None, "bgas.csv does not exist"),
        (
            ["bags.csv", "--set", "bag"],
            None,
            "expected either --target (the column to learn) or --model (a saved model to predict with); got neither",
        ),
        (["--set", "bag", "--target", "label"], None, "expected either a file or --example; got neither"),
        (["bags.csv", "--set", "bag", "--target", "bag"], None, "the target 'bag' cannot also be the set column"),
        (["bags.csv", "--set", "bag", "--target", "label", "--columns", "z"], None, "has no column 'z'"),
        (["bags.csv", "--set", "bag", "--target", "label", "--folds", "1"], None, "--folds must be at least 2; got 1"),
        (
            ["bags.csv", "--set", "bag", "--target", "label", "--device", "abacus"],
            None,
            "device must be one that PyTorch",
        ),
        (
            ["bags.csv", "--set", "bag", "--target", "label", "--rows", "a.txt"],
            None,
            "--rows must end in .csv; got a.txt",
        ),
        (["bags.csv", "--set", "bag", "--model", "nowhere"], None, "does not exist; SetClassifier.load reads a folder"),
        (["bags.csv", "--set", "bag", "--model", "m", "--save", "n"], None, "--model predicts FILE itself"),
        (["messy.csv", "--set", "bag", "--target", "label"], MESSY, "line 3: set b1 has label 'no', and 'yes' before"),
        (["messy.csv", "--set", "bag", "--target", "label"], "bag,label,x\na,,1\nb,no,2\n", "line 2: label is missing"),
        (
            ["messy.csv", "--set", "bag", "--target", "label"],
            "bag,label,x\na,yes,1\nb,no,2\nc,no,3\n",
            "every class needs at least 2 sets for cross-validation; 'yes' has 1",
        ),
        (["messy.csv", "--set", "bag", "--target", "label"], "bag,label,x\na,yes,1\nb,no,\n", "a value is missing"),
        (
            ["bags.csv", "--set", "bag", "--target", "label", "--columns", "x,y"],
            None,
            "has no column 'x,y'; separate columns by spaces: --columns x y",
        ),
        (
            ["bags.csv", "--set", "bag", "--target", "label", "--group", "label"],
            None,
            "the group 'label' determines the label, because it is the target",
        ),
        (
            ["messy.csv", "--set", "bag", "--target", "label", "--group", "ward"],
            "bag,label,ward,x\na,yes,u,1\nb,yes,u,2\nc,no,v,1\nd,no,w,3\n",
            "all of 'yes' are in the group 'u'. Every group has one label: choose another column for --group",
        ),
    ],
)
def test_a_mistake_gets_one_line_and_no_traceback(capsys, arguments, content, message):
    if content is not None:
        Path("messy.csv").write_text(content)
    code, out, err = run(capsys, *arguments)
    assert code == 1
    assert message in err
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--predict", "nothere.csv"], "nothere.csv does not exist"),
        (["--predict", "other.csv"], "other.csv has no column 'y'; its columns are bag, x"),
        (["--save", "bags.csv"], "--save must be a folder that can be written to, or a new one; got bags.csv"),
        (["--save", "bags.csv/model"], "--save must be a folder that can be written to"),
    ],
)
def test_a_mistake_is_found_before_learning(capsys, monkeypatch, options, message):
    def fail(*_arguments: object, **_options: object) -> None:
        raise AssertionError("it learned first")

    monkeypatch.setattr(set_estimators.SetClassifier, "fit", fail)
    Path("other.csv").write_text("bag,x\na,1\n")
    code, out, err = run(capsys, "bags.csv", "--set", "bag", "--target", "label", *options)
    assert (code, out) == (1, "")
    assert message in err


def test_it_says_which_predictions_are_held_out_and_which_columns_look_like_identifiers(capsys):
    write_bags("patients.csv", patient=7)
    options = ("patients.csv", "--set", "bag", "--target", "label", "--folds", "2")
    code, out, err = run(capsys, *options)
    assert code == 0, err
    printed = " ".join(out.split())
    assert "predictions are those of the folds in which the set was held out;" in printed
    assert "deciding rows are those of the final model, which has learned from all sets" in printed
    assert "note: column patient is a feature, but looks like an identifier; with --group patient" in printed
    code, out, _ = run(capsys, *options, "--columns", "x", "y", "patient", "--json")
    result = json.loads(out)
    assert (code, result["notes"], result["held_out"]) == (0, [], True)


def test_few_sets_are_learned_with_a_note_instead_of_a_warning(capsys):
    write_bags("few.csv", count=4)
    code, out, err = run(capsys, "few.csv", "--set", "bag", "--target", "label", "--folds", "2", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["predictions"][0]["set"] == "bag 0"
