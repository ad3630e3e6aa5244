"""``picaset cluster``: from a file to labels, mixtures and a figure, and what it says when that cannot be."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import trapezoid

from picaset.cli import main
from picaset.estimators import mixture_plot
from picaset.estimators.mixture_plot import NOISE, PALETTE, Panel, draw_mixtures, separating_columns
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


def test_labels_can_be_clustered_again(two_sets, tmp_path):
    first, second = tmp_path / "labels.csv", tmp_path / "again.csv"
    assert main(["cluster", str(two_sets), "--set", "who", "--labels", str(first)]) == 0
    assert main(["cluster", str(first), "--columns", "x", "y", "--labels", str(second)]) == 0
    assert list(read(second)[0])[-4:] == ["component", "probability", "component_2", "probability_2"]
    assert [row["component"] for row in read(second)] == [row["component"] for row in read(first)]


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
    panel = Panel("", np.zeros((3, 2)), np.zeros(3, dtype=np.int64), np.zeros((1, 2)), np.eye(2)[None], np.ones(1))
    draw_mixtures([panel] * 4, ["x", "y"], tmp_path / "figure.png")
    assert [axis.get_visible() for axis in figure.axes] == [True] * 4 + [False] * 2


def test_scikit_learn_is_put_beside_it(two_sets, capsys):
    assert main(["cluster", str(two_sets), "--set", "who", "--compare", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    ours, theirs = compared["picaset"], compared["scikit-learn, 10 starts"]
    assert ours["log_likelihood"] > theirs["log_likelihood"] - 0.01


def test_rows_with_missing_values_are_refused_or_dropped_on_request(two_sets, tmp_path, capsys):
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
        ("s,x,y\na,1,2\na,b,4\n", [], "line 3: column x has 'b', which is not a number"),
        ("s,t\na,b\nc,d\n", [], "has no column of numbers; its columns are s (text), t (text)"),
        ("s,t\n1,2_0\n2,3_1\n", ["--set", "s"], "has no column of numbers besides s; its columns are t (text)"),
        ("s\n1\n2\n", ["--set", "s"], "has no column of numbers besides s; its columns are s."),
        ("x,y\n1,2\n3,4\n", ["--columns", "x", "z"], "has no column 'z'; its columns are x, y"),
        ("x,y\n1,2\n3,4\n", ["--set", "z"], "has no column 'z'; its columns are x, y"),
        (
            "x,y\n1,2\n3,4\n",
            ["--drop-missing", "--keep-missing"],
            "--drop-missing and --keep-missing exclude each other; give one of them.",
        ),
        (",".join(f"c{index}" for index in range(101)) + "\n" + "1," * 100 + "1\n", [], "at most 100 can be clustered"),
        ("x,y\n1,2\n", ["--compare"], "--compare needs a set with at least two points"),
        ("x,y\n1,\n,4\n", ["--drop-missing"], "every row has a missing value"),
        ("x,y\n1,2\n3,4\n", ["--max-components", "1000000000"], "--max-components must be between 1 and 200"),
        ("x,y\n1,2\n3,4\n", ["--components", "-3"], "--components must be between 1 and 200; got -3"),
        ("x,y\n1,2\n3,4\n", ["--plot", "p.jpg"], "--plot must end in .png or .svg or .pdf"),
        ("x,y\n1,2\n3,4\n", ["--labels", "no/such/l.csv"], "--labels: there is no folder no/such"),
        (
            "x,y\n1,2\n3,4\n",
            ["--labels", "points.csv"],
            "--labels must differ from the file to read; both are points.csv.",
        ),
        (
            "x,y\n1,2\n3,4\n",
            ["--labels", "a.csv", "--parameters", "./a.csv"],
            "--parameters must differ from --labels; both are a.csv.",
        ),
        ("x,y\n1e300,0\n0,1e300\n", ["--components", "2"], "between -1e+100 and 1e+100; set 0 has 1e+300 in row 0"),
        ("", [], "is empty"),
    ],
)
def test_input_that_cannot_be_clustered_is_refused_in_one_line(tmp_path, monkeypatch, capsys, text, arguments, message):
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
    assert "expected either a file or --example" in capsys.readouterr().err


def test_equal_points_and_large_coordinates_are_clustered(tmp_path, capsys):
    path = tmp_path / "points.csv"
    for rows in (["5,5"] * 20, ["1e12,1e12", "1e12,1.1e12", "2e12,1e12"]):
        path.write_text("x,y\n" + "\n".join(rows) + "\n")
        assert main(["cluster", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["mixtures"]
        assert all(np.isfinite(value) for entry in found for value in entry.values() if not isinstance(value, str))


def test_other_dimensions_work_by_k_means(tmp_path, capsys):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).standard_normal((50, 5)))
    arguments = ["--init", "k-means++", "--components", "2", "--covariance", "diag", "--json"]
    assert main(["cluster", str(tmp_path / "points.npy"), *arguments]) == 0
    assert len(json.loads(capsys.readouterr().out)["mixtures"]) == 2


def test_a_set_with_too_few_rows_gets_the_mixture_that_exists_and_a_note(tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text("s,x,y\n" + "".join(f"a,{index},{index % 7}\n" for index in range(20)) + "b,5,6\n")
    assert main(["cluster", str(path), "--set", "s", "--components", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["set"] for entry in found["mixtures"]] == ["a", "a", "b"]
    assert any("The set has 1 point" in note and "(set b)" in note for note in found["notes"])


def test_the_largest_number_of_components_is_noted(two_sets, capsys):
    assert main(["cluster", str(two_sets), "--max-components", "2"]) == 0
    assert "Increase --max-components" in capsys.readouterr().out.replace("\n", " ")


def test_noise_is_labelled_and_has_its_own_row(tmp_path, capsys):
    random = np.random.default_rng(0)
    points = np.concatenate(
        [random.normal(0, 0.1, (150, 2)), random.normal(5, 0.1, (150, 2)), random.uniform(-3, 8, (30, 2))]
    )
    np.save(tmp_path / "points.npy", points)
    arguments = [str(tmp_path / "points.npy"), "--noise", "--labels", str(tmp_path / "labels.csv")]
    assert main(["cluster", *arguments, "--plot", str(tmp_path / "points.png")]) == 0
    assert "noise" in capsys.readouterr().out
    labels = [row["component"] for row in read(tmp_path / "labels.csv")]
    assert labels[300:].count("-1") > 20
    assert labels[:300].count("-1") < 10


def test_rows_with_missing_values_may_be_kept(two_sets, tmp_path, capsys):
    two_sets.write_text(two_sets.read_text() + "a,31,\na,,\n")
    out = tmp_path / "labels.csv"
    arguments = ["--set", "who", "--components", "2", "--keep-missing", "--labels", str(out)]
    assert main(["cluster", str(two_sets), *arguments, "--plot", str(tmp_path / "points.png")]) == 0
    assert [row["component"] for row in read(out)][-2:] == ["0", ""]
    assert main(["cluster", str(two_sets), "--in-chunks", "--keep-missing"]) == 1
    assert "--keep-missing needs the whole table" in capsys.readouterr().err


def test_a_file_written_by_pandas_is_clustered_without_options(two_sets, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    pandas.read_csv(two_sets).assign(user_id=7, day="2021-03-04").to_csv(tmp_path / "frame.csv.gz")
    assert main(["cluster", str(tmp_path / "frame.csv.gz")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "columns x, y" in out
    assert "note: left out: index (ids), who (text), user_id (ids), day (dates); choose columns with --columns" in out


def test_digits_follow_the_spread_of_a_column(tmp_path, capsys):
    random = np.random.default_rng(0)
    places = np.array([[48.8566, 2.3522], [48.8738, 2.2950]])[random.integers(2, size=200)]
    times = 1_700_000_000 + 400 * random.standard_normal((200, 1))
    np.save(tmp_path / "points.npy", np.hstack([places + 1e-4 * random.standard_normal((200, 2)), times]))
    assert main(["cluster", str(tmp_path / "points.npy"), "--components", "2"]) == 0
    out = capsys.readouterr().out
    for text in ("48.856", "48.873", "2.352", "2.29", "1699999"):
        assert text in out


@pytest.mark.parametrize("num_columns", [14, 30])
def test_wide_tables_are_printed_row_by_row(tmp_path, capsys, num_columns):
    points = np.random.default_rng(0).standard_normal((60, num_columns))
    header = ",".join(f"a long name {index}" for index in range(num_columns))
    np.savetxt(tmp_path / "points.csv", points, delimiter=",", header=header, comments="")
    assert main(["cluster", str(tmp_path / "points.csv"), "--components", "1", "--covariance", "diag"]) == 0
    out = capsys.readouterr().out
    assert all(f"a long name {index}" in out for index in range(min(num_columns, 20)))
    assert ("and 10 more columns" in out) == (num_columns == 30)


def test_names_from_a_file_do_not_control_the_terminal(tmp_path, capsys):
    rows = "".join(f"{index % 5},{index % 7},[/x]\x1b[31m {index % 2}\n" for index in range(40))
    (tmp_path / "points.csv").write_text("[/x],\x1b[31my$,[bold]set\n" + rows)
    arguments = [str(tmp_path / "points.csv"), "--set", "[bold]set", "--plot", str(tmp_path / "points.png")]
    assert main(["cluster", *arguments]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[/x]" in out


def test_a_figure_of_many_columns_shows_those_that_separate_best(tmp_path, capsys):
    points = np.random.default_rng(0).standard_normal((90, 4))
    points[:30, 1] += 20
    points[30:60, 3] += 20
    np.save(tmp_path / "points.npy", points)
    arguments = [str(tmp_path / "points.npy"), "--components", "3", "--plot", str(tmp_path / "points.png")]
    assert main(["cluster", *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "note: the figure shows columns column2 and column4, which separate the components best" in out


def test_the_figure_of_one_column_is_a_histogram_with_the_density_of_the_mixture(tmp_path, monkeypatch):
    figure = new_figure(6, 6)
    monkeypatch.setattr(mixture_plot, "new_figure", lambda width, height: figure)
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(0, 1, 300), random.normal(20, 0.01, 100), random.uniform(-5, 25, 30)])
    np.savetxt(tmp_path / "points.csv", values, header="x", comments="")
    arguments = [str(tmp_path / "points.csv"), "--components", "2", "--noise", "--plot", str(tmp_path / "points.png")]
    assert main(["cluster", *arguments]) == 0
    (axis,) = figure.axes
    assert sum(bar.get_width() * bar.get_height() for bar in axis.patches) == pytest.approx(1)
    *components, density = (line.get_xydata() for line in axis.lines)
    assert trapezoid(density[:, 1], density[:, 0]) == pytest.approx(1, abs=0.02)
    areas = [trapezoid(line[:, 1], line[:, 0]) for line in components]
    np.testing.assert_allclose(areas, [300 / 430, 100 / 430], atol=0.03)


def test_columns_separate_though_others_are_constant_or_there_is_one_component():
    covariances = np.stack([np.diag([0.0, 1.0, 0.0, 1.0])] * 2)
    means = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 9.0, 0.0, 9.0]])
    assert separating_columns([means], [covariances]) == (1, 3)
    assert separating_columns([means[:1]], [covariances[:1]]) == (0, 1)


def test_ellipses_follow_the_covariance_and_lie_above_the_points(tmp_path, monkeypatch):
    figure = new_figure(6, 6)
    monkeypatch.setattr(mixture_plot, "new_figure", lambda width, height: figure)
    covariance = np.array([[2.0, 1.5], [1.5, 2.0]])  # deviations sqrt(3.5) along the diagonal, sqrt(0.5) across
    points = np.random.default_rng(0).standard_normal((30_000, 2))
    labels = np.repeat(np.array([0, -1]), 15_000)
    panel = Panel("", points, labels, np.zeros((1, 2)), covariance[None], np.ones(1))
    draw_mixtures([panel], ["x", "y"], tmp_path / "figure.png")
    (axis,) = figure.axes
    (ellipse,), (scatter,) = axis.patches, axis.collections
    along, across = sorted([ellipse.width, ellipse.height], reverse=True)
    assert (along / 4) ** 2 == pytest.approx(3.5)
    assert (across / 4) ** 2 == pytest.approx(0.5)
    angle = ellipse.angle + (0 if ellipse.width > ellipse.height else 90)
    assert angle % 180 == pytest.approx(45)
    assert scatter.get_zorder() <= ellipse.get_zorder()
    assert len(scatter.get_offsets()) == mixture_plot.MAX_DRAWN
    assert any("20,000 of 30,000 points drawn" in text.get_text() for text in axis.texts)
    assert len({tuple(colour) for colour in scatter.get_facecolors().round(3).tolist()}) == 2
    assert len(set(PALETTE)) == 20
    assert NOISE not in PALETTE


def test_a_label_touches_its_tilted_ellipse(tmp_path, monkeypatch):
    figure = new_figure(6, 6)
    monkeypatch.setattr(mixture_plot, "new_figure", lambda width, height: figure)
    covariance = np.array([[9.0, -8.0], [-8.0, 9.0]])
    points = np.random.default_rng(0).multivariate_normal([1.0, 2.0], covariance, 200)
    panel = Panel("one", points, np.zeros(200, int), np.array([[1.0, 2.0]]), covariance[None], np.ones(1))
    draw_mixtures([panel], ["x", "y"], tmp_path / "tilted.PNG")
    (axis,) = figure.axes
    (label,) = [text for text in axis.texts if text.get_text() == "0"]
    offset = np.array(label.xy) - [1.0, 2.0]
    normal = np.linalg.solve(covariance, offset)  # of the ellipse through this point
    np.testing.assert_allclose([offset @ normal, normal[0]], [4.0, 0.0], atol=1e-9)
    assert normal[1] > 0


@pytest.mark.parametrize("place", [(48.8606, 2.3376), (562_286.0, 5_406_645.0)], ids=["degrees", "metres"])
def test_coordinates_at_the_axes_are_written_out(place, tmp_path, monkeypatch):
    figure = new_figure(6, 6)
    monkeypatch.setattr(mixture_plot, "new_figure", lambda width, height: figure)
    points = np.array(place) + 1e-5 * place[0] * np.random.default_rng(0).standard_normal((50, 2))
    panel = Panel("", points, np.zeros(50, int), points.mean(axis=0)[None], np.cov(points.T)[None], np.ones(1))
    draw_mixtures([panel], ["x", "y"], tmp_path / "places.png")
    (axis,) = figure.axes
    for values, lines, centre in zip(points.T, (axis.xaxis, axis.yaxis), place, strict=True):
        labels = [float(label.get_text()) for label in lines.get_ticklabels()]
        assert lines.get_offset_text().get_text() == ""
        assert np.abs(np.array(labels) - centre).max() < 10 * values.std()


def test_constant_columns_and_single_rows_have_no_invented_deviation(tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text("s,x,y\n" + "".join(f"a,{index},7\n" for index in range(20)) + "b,5,7\nc,6,7\nc,8,7\n")
    assert main(["cluster", str(path), "--set", "s"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "7 ± 0" in out
    assert "5.0 ± 0 " in out
    assert "The set has 1 point, fewer than its 2 columns plus two, and gets 1 component" in out
    path.write_text("x,y\n5,7\n")
    assert main(["cluster", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 point in 1 set" in out
    assert "100%" not in out


def test_a_misspelt_command_is_answered_with_the_right_one(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["clutser", "points.csv"])
    assert "there is no command 'clutser'; did you mean 'cluster'?" in capsys.readouterr().err
