"""From the records of runs to tables, figures and a page: what is there is shown, and nothing else."""

import html
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

import picaset
from picaset.cli import main
from picaset.figures import new_figure, write_figure
from picaset.lab.experiments import EXPERIMENTS, TABLES, tables_named
from picaset.lab.reports import clustering
from picaset.lab.reports.page import Cell, Table
from picaset.lab.reports.records import find_records, runs_named
from picaset.lab.reports.reproduction import REPORTERS, all_tables, write_report
from picaset.lab.tasks.clustering import Clustering
from picaset.lab.training.run_directory import run_name
from tests.short_runs import train_shortly

RUNS = [("clustering-ae32-pb-sa", 0), ("clustering-ae32-pb-sa", 1), ("clustering-set-transformer", 0),
        ("clustering-ours", 0), ("clustering-ablation-norm", 0)]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return train_shortly(RUNS, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    return write_report(find_records([runs]), [runs], tmp_path_factory.mktemp("report"), origin="")


def numbers(records, name: str, move: int) -> list[float]:
    return [record.result["moves"][move]["log_likelihood"]["0"] for record in runs_named(records, f"clustering-{name}")]


def as_if_scored_like_the_paper(records):
    """The same numbers, as if they came from a thousand sets of 300 to 600 points."""
    return [
        replace(record, experiment=replace(record.experiment, task=Clustering(network=record.experiment.task.network)))
        for record in records
    ]


def test_what_was_scored_on_other_sets_does_not_stand_beside_the_paper(runs):
    assert not any(cell.published for row in clustering.table_2(find_records([runs])).rows for cell in row)


def test_a_report_of_ablations_alone_has_no_table_2(runs):
    only = [record for record in find_records([runs]) if "ablation" in str(record.path)]
    assert clustering.table_2(only) is None


def test_a_cell_is_the_mean_over_seeds_with_its_spread_beside_the_paper(runs):
    records = as_if_scored_like_the_paper(find_records([runs]))
    table = clustering.table_2(records)
    (row,) = (row for row in table.rows if row[0].measured == "AE32 + PB + SA")
    first, second = numbers(records, "ae32-pb-sa", 1)
    mean = (first + second) / 2
    assert row[2].measured == "2 seeds"
    assert row[4].measured == f"{mean:.3f} ± {abs(first - second) / 2**0.5:.3f}"
    assert row[4].published == f"paper -1.899 ({mean + 1.8994:+.3f})"


def test_rows_without_a_run_are_not_in_the_table(runs):
    shown = [row[0].measured for row in clustering.table_2(find_records([runs])).rows]
    assert shown == ["Set Transformer", "AE32 + PB + SA", "ours (claims, canonicalized)", "oracle"]


def test_the_best_of_each_shift_is_marked_once(runs):
    table = clustering.table_2(find_records([runs]))
    for column in range(3, len(table.columns)):
        marked = [row for row in table.rows if row[column].best]
        assert len(marked) == 1
        values = [float(row[column].measured.split()[0]) for row in table.rows[:-1]]
        assert float(marked[0][column].measured.split()[0]) == max(values)


def test_ablations_are_compared_with_the_full_network(runs):
    table = clustering.ablations(find_records([runs]))
    assert [row[0].measured for row in table.rows] == ["AE32 + PB + SA, 2 steps", "with layer norm"]


def test_without_runs_of_an_ablation_there_is_no_such_table(runs):
    assert (
        clustering.ablations([record for record in find_records([runs]) if "ablation" not in str(record.path)]) is None
    )


def test_scikit_learn_stands_in_the_same_table(runs):
    rows = [
        dict(num_starts=10, milliseconds_per_set=70.0, moves=[dict(log_likelihood=-1.46 - move) for move in range(7)])
    ]
    table = clustering.refinement(find_records([runs]), rows)
    assert [cell.measured for cell in table.rows[-1]] == [
        "scikit-learn, 10 starts", "", "", "-1.460", "", "", "-7.460", "70.00",
    ]  # fmt: skip


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and tag == "section"]
        self.outside += [
            value for name, value in attrs
            if name in ("href", "src", "xlink:href") and not (value or "").startswith(("#", "data:"))
        ]  # fmt: skip


def test_the_page_is_whole_and_asks_for_nothing(report):
    page = Links()
    text = report.page.read_text()
    page.feed(text)
    assert page.outside == []
    assert page.tags.count("script") == 0
    assert page.tags.count("table") == sum(map(len, report.tables.values())) + 1
    assert page.tags.count("svg") == len(report.figures) == 4
    assert "Figure 4" in text


def test_the_page_says_how_the_numbers_were_made(report):
    text = re.sub(r"\s+", " ", report.page.read_text())
    assert "Profile smoke: every row 2 steps of 4 sets, the same sets for the same seed; " in text
    assert "; less than a minute each on " in text
    assert "The paper trains for 50 000 steps of 10 sets" in text
    for name, _ in RUNS:
        assert name in text


def test_a_row_with_another_budget_is_named(runs):
    records = find_records([runs])
    other = replace(records[0].experiment, training=replace(records[0].experiment.training, steps=7000))
    changed = [replace(records[0], experiment=other), *records[1:]]
    named = clustering.row_label(clustering.row_name(changed[0]))
    said = f"every row 2 steps of 4 sets, the same sets for the same seed ({named}: 7 000 steps of 4 sets)"
    assert said in clustering.describe_setting(changed)


def test_every_figure_is_there_as_svg_and_png(report):
    names = {path.stem for path in report.figures}
    assert names == {"clusters_under_shift", "likelihood_against_shift", "cascade_at_work", "learning_curves"}
    assert all(path.with_suffix(".png").stat().st_size > 10_000 for path in report.figures)


def test_own_runs_come_before_records(runs, tmp_path):
    mine = tmp_path / "mine" / run_name(*RUNS[0][:1], "smoke", 0)
    mine.mkdir(parents=True)
    for name in ("config.json", "environment.json", "metrics.jsonl", "result.json"):
        (mine / name).write_text((runs / mine.name / name).read_text())
    found = {record.key: record.path for record in find_records([tmp_path / "mine", runs])}
    assert found["clustering-ae32-pb-sa", "smoke", 0] == mine
    assert len(found) == len(RUNS)


def test_unfinished_runs_are_not_shown(runs, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_text((runs / run_name(*RUNS[0][:1], "smoke", 0) / "config.json").read_text())
    assert find_records([tmp_path]) == []


def test_an_unfinished_run_is_named_where_records_are_shown_instead(clone, runs, capsys):
    half = clone / "runs/half"
    half.mkdir(parents=True)
    (half / "config.json").write_text((runs / run_name(*RUNS[0][:1], "smoke", 0) / "config.json").read_text())
    assert main(["report"]) == 0
    shown = capsys.readouterr()
    assert COMMITTED in shown.out
    assert (
        shown.err
        == "picaset: skipped runs/half: it is not finished; continue it with picaset train --resume runs/half\n"
    )


def test_the_figure_of_shifted_clusters_is_drawn_without_a_note_of_matplotlib(runs, tmp_path, caplog):
    assert clustering.draw_clusters_under_shift(find_records([runs]), tmp_path)
    assert caplog.records == []


def record_of(runs: Path, name: str = "ae32-pb-sa", seed: int = 0):
    return runs_named(find_records([runs]), f"clustering-{name}")[seed]


def copy_run(record, folder: Path, *, profile: str = "smoke") -> Path:
    """Copy a run into a folder, as if it had been trained in another profile."""
    copied = folder / run_name(record.experiment.name, profile.replace("/", "-"), record.experiment.training.seed)
    copied.mkdir(parents=True)
    (copied / "config.json").write_text(json.dumps(record.experiment.to_json() | {"profile": profile}))
    for name in ("environment.json", "metrics.jsonl", "result.json"):
        (copied / name).write_text((record.path / name).read_text())
    return copied


@pytest.fixture
def clone(runs, tmp_path, monkeypatch) -> Path:
    """A working directory with one committed record, of profile quick, and no runs; the only figure is empty."""

    def draw(records, folder):
        return {"An empty figure.": write_figure(new_figure(1, 1), folder, "empty")}

    monkeypatch.setitem(REPORTERS, "clustering", replace(REPORTERS["clustering"], draw_figures=draw))
    monkeypatch.chdir(tmp_path)
    copy_run(record_of(runs), tmp_path / "results/runs", profile="quick")
    return tmp_path


COMMITTED = "Shown from 1 committed record in results/runs/, profile quick; nothing was trained now."


def test_a_report_of_nothing_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(picaset, "__file__", str(tmp_path / "picaset/__init__.py"))  # installed without records
    assert main(["report"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "There is no finished run in runs or results/runs; train one with: picaset train clustering-ours" in shown
    assert main(["report", "--runs", "nowhere"]) == 1
    assert "--runs: there is no folder nowhere." in capsys.readouterr().err
    assert main(["reproduce", "--profile", "quick"]) == 1
    assert "picaset reproduce --profile quick --train" in capsys.readouterr().err


@pytest.mark.parametrize("profile", ["smoke", "quick-70-steps", "mine.v_2"])
def test_own_runs_are_shown_whatever_their_profile_and_committed_records_are_not(clone, runs, profile, capsys):
    for seed in (0, 1):
        copy_run(record_of(runs, seed=seed), clone / "runs", profile=profile)
    assert main(["report"]) == 0
    shown = capsys.readouterr().out
    origin = f"Shown from 2 runs in runs/, profile {profile}."
    assert origin in shown
    assert f"Profile {profile}: every row 2 steps" in shown
    page = html.unescape((clone / "report/index.html").read_text())
    assert origin in page
    assert "committed" not in page
    assert page.count(f'data-column="profile">{profile}</td>') == 2  # the list of runs


@pytest.mark.parametrize("arguments", [[], ["--records"], ["--runs", "results/runs"], ["--profile", "quick"]])
def test_committed_records_are_shown_on_request_or_without_a_finished_run_and_said_to_be(
    clone, runs, arguments, capsys
):
    half = clone / "runs/half"
    half.mkdir(parents=True)
    (half / "config.json").write_text((record_of(runs).path / "config.json").read_text())  # not finished
    if arguments:
        copy_run(record_of(runs, seed=1), clone / "runs")
    assert main(["report", *arguments]) == 0
    assert COMMITTED in capsys.readouterr().out
    assert COMMITTED in (clone / "report/index.html").read_text()
    assert main(["report", *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["origin"] == COMMITTED


def test_each_profile_has_its_own_tables_and_figures(clone, runs, capsys):
    copy_run(record_of(runs), clone / "runs", profile="quick")
    for record in (record_of(runs, seed=1), record_of(runs, "set-transformer")):
        copy_run(record, clone / "runs", profile="smoke")
    assert main(["report"]) == 0
    shown = capsys.readouterr().out
    assert "Shown from 3 runs in runs/, profiles quick and smoke." in shown
    records = find_records([clone / "runs"])
    quick, smoke = (table for table in all_tables(records, []) if table.title.startswith("Table 2"))
    assert quick.title.endswith("shifted (profile quick)")
    assert smoke.title.endswith("shifted (profile smoke)")
    assert [row[0].measured for row in quick.rows] == ["AE32 + PB + SA", "oracle"]
    assert [row[2].measured for row in quick.rows[:-1]] == ["one seed"]  # never averaged with the seed of the other
    assert [row[0].measured for row in smoke.rows] == ["Set Transformer", "AE32 + PB + SA", "oracle"]
    page = Links()
    page.feed((clone / "report/index.html").read_text())
    assert len(set(page.ids)) == len(page.ids)
    folders = {path.name for path in (clone / "report/figures").iterdir()}
    assert folders == {"profile-quick", "profile-smoke"}
    assert main(["report", "--profile", "smoke"]) == 0
    assert "2 runs in" in (shown := capsys.readouterr().out)
    assert "(profile" not in shown


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:40])


def without(file: str, name: str):
    def remove(run: Path) -> None:
        values = json.loads((run / file).read_text())
        del values[name]
        (run / file).write_text(json.dumps(values))

    return remove


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: cut(run / "config.json"), "config.json is not JSON"),
        (lambda run: (run / "config.json").write_text('{"format": "other"}'), "config.json does not describe an exp"),
        (without("config.json", "training"), "config.json: the field 'training' is missing."),
        (lambda run: cut(run / "result.json"), "result.json is not JSON"),
        (lambda run: (run / "result.json").write_text("[1]"), "result.json must hold a JSON object; got list."),
        (without("result.json", "seconds"), "result.json lacks 'seconds'; was it written by another program?"),
        (without("result.json", "moves"), "result.json lacks 'moves'; was it written by another program?"),
        (
            lambda run: (run / "result.json").write_text(
                json.dumps(json.loads((run / "result.json").read_text()) | {"moves": [{}]})
            ),
            "result.json: moves[0] lacks 'log_likelihood'; was it written by another program?",
        ),
        (lambda run: (run / "environment.json").unlink(), "environment.json: No such file or directory"),
        (
            lambda run: (run / "metrics.jsonl").write_text('{"score": 1}\n'),
            "metrics.jsonl: line 1, step must be a whole number; got None.",
        ),
        (lambda run: (run / "config.json").write_bytes(b"\xff\xfe\x00"), "config.json is not JSON"),
    ],
)
def test_a_damaged_or_foreign_run_is_skipped_in_one_line_with_its_name_and_the_reason(
    runs, tmp_path, capsys, damage, reason
):
    copy_run(record_of(runs, "ablation-norm"), tmp_path / "runs")
    damage(copy_run(record_of(runs, seed=1), tmp_path / "runs"))
    assert main(["report", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--json"]) == 0
    shown = capsys.readouterr()
    name = f"{tmp_path}/runs/clustering-ae32-pb-sa-smoke-seed1"
    assert f"picaset: skipped {name}: {reason}" in shown.err
    assert shown.err.count("\n") == 1
    assert json.loads(shown.out)["origin"].startswith("Shown from 1 run in ")


def test_a_second_run_of_the_same_name_profile_and_seed_is_skipped_by_name(runs, tmp_path):
    shutil.copytree(runs / run_name(*RUNS[0][:1], "smoke", 0), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    lines = list[str]()
    assert [record.path.name for record in find_records([tmp_path], on_skip=lines.append)] == ["a"]
    assert lines == [f"skipped {tmp_path}/b: {tmp_path}/a has the same name, profile and seed"]


def test_figures_that_cannot_be_drawn_are_skipped_and_the_tables_shown(runs, tmp_path):
    record = record_of(runs)
    broken = replace(record, result=record.result | {"shown": {}})
    lines = list[str]()
    report = write_report([broken], [], tmp_path, origin="", on_skip=lines.append)
    assert report.tables["table2"]
    assert report.figures == []
    assert lines[0].startswith("skipped the figures of Clustering under shift: a file has an unexpected structure")


def test_a_run_that_is_in_no_table_is_listed(runs, tmp_path, capsys):
    record = record_of(runs)
    copied = copy_run(record, tmp_path / "runs")
    (copied / "config.json").write_text(json.dumps(record.experiment.to_json() | {"name": "my-own"}))
    assert main(["report", "table2", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert "table2: none of these runs belongs to it" in capsys.readouterr().out
    page = (tmp_path / "report/index.html").read_text()
    assert "no table of the paper has a row for my-own." in page
    assert "<td>my-own</td>" in page


def test_the_page_begins_with_the_best_rows_except_for_smoke_runs(clone, runs, tmp_path):
    records = find_records([runs])
    quick = [replace(record, experiment=replace(record.experiment, profile="quick")) for record in records]
    for shown, summary in ((records, "the scores do not rank the methods."), (quick, "of 7 columns")):
        page = write_report(shown, [], tmp_path, origin="").page.read_text()
        assert summary in page[: page.index("<section")]


def test_rows_without_a_record_are_said_to_be_left_out(clone, runs, capsys):
    shutil.rmtree(clone / "results")
    for record in find_records([runs]):
        copy_run(record, clone / "results/runs", profile="quick")
    assert main(["reproduce", "table2"]) == 0
    shown = capsys.readouterr().out
    assert "clustering-ours, seed 0: from results/runs/clustering-ours-quick-seed0, trained in" in shown
    assert "clustering-sa-pb, seed 0: left out, it has no finished run; add --train to train it" in shown
    assert "report/index.html" in shown
    assert "Table 2" in shown
    assert main(["reproduce", "table5"]) == 0
    shown = capsys.readouterr().out
    assert "table5: none of these runs belongs to it" in shown
    assert "Table 2" not in shown
    assert "Table 2" in (clone / "report/index.html").read_text()  # the page has all that there is
    copy_run(record_of(runs), clone / "runs", profile="quick")
    assert main(["reproduce", "table2"]) == 0
    assert (
        "Shown from 1 run in runs/ and 4 committed records in results/runs/, profile quick." in capsys.readouterr().out
    )


def test_every_table_belongs_to_a_task_and_every_task_to_one():
    assert [reporter.table for reporter in REPORTERS.values()] == list(TABLES)
    assert tables_named(("table3", "table2", "table3")) == ["table3", "table2"]


def test_an_unknown_table_is_refused(capsys):
    assert main(["reproduce", "table7"]) == 1
    assert f"There is no table 'table7'; tables are {', '.join(TABLES)}." in capsys.readouterr().err


def test_every_run_of_a_table_has_an_experiment():
    for runs_of_table in TABLES.values():
        assert len(set(runs_of_table)) == len(runs_of_table)
        assert {name for name, _ in runs_of_table} <= set(EXPERIMENTS)


def test_a_table_prints_and_writes_itself():
    table = Table("Title", ["name", "value"], [[Cell("a"), Cell("1.0", "paper 2.0", best=True)]], ["A note."])
    console = Console(width=80, record=True, file=io.StringIO())
    table.print(console)
    shown = console.export_text()
    assert all(text in shown for text in ("Title", "1.0", "paper 2.0", "A note."))
    assert table.markdown() == "| name | value |\n|---|---|\n| a | **1.0**<br>paper 2.0 |\n"


def test_a_table_that_does_not_fit_is_printed_by_rows_and_no_number_is_cut():
    columns = ["name", *(f"column {index}" for index in range(20))]
    table = Table("Title", columns, [[Cell("a row"), *(Cell(f"{index}.12345", "paper 9.9") for index in range(20))]])
    console = Console(width=70, record=True, file=io.StringIO())
    table.print(console)
    shown = " ".join(console.export_text().split())
    assert all(f"column {index}: {index}.12345 (paper 9.9)" in shown for index in range(20))
    assert "a row" in shown
    assert "…" not in shown


@pytest.mark.parametrize("width", [80, 20])
def test_on_a_screen_the_best_is_bold_and_nothing_else(width):
    table = Table("Title", ["name", "a value", "other"], [[Cell("a"), Cell("1.0", best=True), Cell("2.0")]], ["Of 3."])
    console = Console(width=width, record=True, file=io.StringIO(), color_system="standard")
    table.print(console)
    shown = console.export_text(styles=True)
    bold = [text for style, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", shown) if "1" in style.split(";")]
    assert [text.strip() for text in bold if re.search(r"\d", text)] == ["1.0"]
