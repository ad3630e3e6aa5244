"""``picaset cluster``: from a file to labels, mixtures and a figure, and what it says when that cannot be."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from picaset.cli import main
from picaset.estimators import mixture_plot
from picaset.estimators.mixture_plot import Panel, draw_mixtures
from picaset.figures import new_figure


@pytest.fixture
def two_sets(tmp_path) -> Path:
    """Set a: two clusters far apart; set b: one."""
    random = np.random.default_rng(0)
    rows = [("a", *point) for point in random.standard_normal((40, 2))]
    rows += [("a", *point) for point in random.standard_normal((60, 2)) + 30]
    rows += [("b", *point) for point in random.standard_normal((50, 2))]
    random.shuffle(rows)
    path = tmp_path / "points.csv"
    path.write_text("who,x,y\n" + "".join(f"{who},{float(x):.4f},{float(y):.4f}\n" for who, x, y in rows))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_each_set_gets_its_own_mixture(two_sets, capsys):
    assert main(["cluster", str(two_sets), "--set", "who", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["mixtures"]
    assert sorted((entry["set"], entry["points"]) for entry in found) == [("a", 100), ("a", 100), ("b", 50)]
    means = {entry["weight"]: entry["mean x"] for entry in found if entry["set"] == "a"}
    assert means[0.6] == pytest.approx(30, abs=0.5)
    assert means[0.4] == pytest.approx(0, abs=0.5)


def test_labels_are_written_beside_the_rows_they_belong_to(two_sets, tmp_path):
    out = tmp_path / "labels.csv"
    assert main(["cluster", str(two_sets), "--set", "who", "--labels", str(out)]) == 0
    before, after = read(two_sets), read(out)
    assert len(before) == len(after) == 150
    for row, labelled in zip(before, after, strict=True):
        assert all(labelled[name] == value for name, value in row.items())
        far = row["who"] == "a" and float(row["x"]) < 15
        assert labelled["component"] == ("1" if far else "0")  # the larger component comes first


def test_parameters_are_the_same_as_json_and_as_csv(two_sets, tmp_path):
    for name in ("mixtures.json", "mixtures.csv"):
        arguments = ["--columns", "x", "y", "--components", "2", "--parameters", str(tmp_path / name)]
        assert main(["cluster", str(two_sets), *arguments]) == 0
    in_json = json.loads((tmp_path / "mixtures.json").read_text())
    in_csv = read(tmp_path / "mixtures.csv")
    assert [entry["set"] for entry in in_json] == ["all", "all"]
    assert [{name: str(value) for name, value in entry.items()} for entry in in_json] == in_csv


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_is_drawn(two_sets, tmp_path, suffix):
    out = tmp_path / f"figure.{suffix}"
    assert main(["cluster", str(two_sets), "--set", "who", "--plot", str(out)]) == 0
    assert out.stat().st_size > 5000


def test_a_figure_shows_no_empty_panels(tmp_path, monkeypatch):
    figure = new_figure(6, 6)
    monkeypatch.setattr(mixture_plot, "new_figure", lambda width, height: figure)
    panel = Panel("", np.zeros((3, 2)), np.zeros(3, dtype=np.int64), np.zeros((1, 2)), np.ones((1, 2)))
    draw_mixtures([panel] * 4, ["x", "y"], tmp_path / "figure.png")
    assert [axis.get_visible() for axis in figure.axes] == [True] * 4 + [False] * 2


def test_scikit_learn_is_put_beside_it(two_sets, capsys):
    assert main(["cluster", str(two_sets), "--set", "who", "--compare", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    ours, theirs = compared["picaset"], compared["scikit-learn, 10 starts"]
    assert ours["log_likelihood"] > theirs["log_likelihood"] - 0.01


def test_rows_with_missing_values_are_refused_or_left_out_as_one_says(two_sets, tmp_path, capsys):
    two_sets.write_text(two_sets.read_text() + "a,,1\nb,1,NA\n")
    assert main(["cluster", str(two_sets), "--set", "who"]) == 1
    assert "line 152: a value is missing in column x (as in 2 of 152 rows)" in capsys.readouterr().err
    out = tmp_path / "labels.csv"
    assert main(["cluster", str(two_sets), "--set", "who", "--drop-missing", "--labels", str(out)]) == 0
    assert "2 rows with missing values dropped" in capsys.readouterr().out.replace("\n", " ")
    assert [row["component"] for row in read(out)][-2:] == ["", ""]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("x,y\n1,2\n", [], "has 1 points; at least 2 are needed"),
        ("x,y\n1,2\n3,4\n", ["--components", "3"], "has 2 points; at least 3 are needed"),
        ("s,x,y\na,1,2\na,3,4\nb,5,6\n", ["--set", "s"], "set 'b' has 1 points; at least 2 are needed"),
        ("s,x,y\na,1,2\na,b,4\n", [], "line 3: column x has 'b', which is not a number"),
        ("s,t\na,b\nc,d\n", [], "has no column of numbers; its columns are s (text), t (text)"),
        ("x,y\n1,2\n3,4\n", ["--columns", "x", "z"], "has no column 'z'; its columns are x, y"),
        ("x,y\n1,2\n3,4\n", ["--set", "z"], "has no column 'z'; its columns are x, y"),
        ("x,y,z\n1,2,3\n3,4,5\n", ["--components", "2"], "no network for 3 coordinates and 2 components"),
        ("x,y\n1,\n,4\n", ["--drop-missing"], "every row has a missing value"),
        ("x\n1\n2\n", ["--init", "k-means++", "--plot", "p.png"], "--plot draws two coordinates; got x"),
        ("x,y\n1,2\n3,4\n", ["--plot", "p.jpg"], "--plot must end in .png or .svg or .pdf"),
        ("x,y\n1,2\n3,4\n", ["--labels", "no/such/l.csv"], "--labels: there is no folder no/such"),
        ("x,y\n1e300,0\n0,1e300\n", ["--components", "2"], "between -1e+100 and 1e+100; set 0 has 1e+300 in row 0"),
        ("", [], "is empty"),
    ],
)
def test_what_cannot_be_clustered_is_refused_in_one_line(tmp_path, monkeypatch, capsys, text, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path))
    Path("points.csv").write_text(text)
    assert main(["cluster", "points.csv", *arguments]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["points.csv"]


def test_a_file_or_the_example_not_both(capsys):
    assert main(["cluster"]) == 1
    assert "give either a file or --example" in capsys.readouterr().err


def test_equal_points_and_large_coordinates_are_clustered(tmp_path, capsys):
    path = tmp_path / "points.csv"
    for rows in (["5,5"] * 20, ["1e12,1e12", "1e12,1.1e12", "2e12,1e12"]):
        path.write_text("x,y\n" + "\n".join(rows) + "\n")
        assert main(["cluster", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["mixtures"]
        assert all(np.isfinite(value) for entry in found for name, value in entry.items() if name != "set")


def test_other_dimensions_work_by_k_means(tmp_path, capsys):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).standard_normal((50, 5)))
    arguments = ["--init", "k-means++", "--components", "2", "--covariance", "diag", "--json"]
    assert main(["cluster", str(tmp_path / "points.npy"), *arguments]) == 0
    assert len(json.loads(capsys.readouterr().out)["mixtures"]) == 2
