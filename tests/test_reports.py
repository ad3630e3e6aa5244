"""From the records of runs to tables, figures and a page: what is there is shown, and nothing else."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from picaset.cli import main
from picaset.lab.experiments import EXPERIMENTS
from picaset.lab.experiments.tables import TABLES, tables_named
from picaset.lab.reports import clustering
from picaset.lab.reports.records import find_records
from picaset.lab.reports.reproduction import SECTIONS, TASK_OF_TABLE, write_report
from picaset.lab.reports.table import Cell, Table
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
    return write_report(find_records([runs]), [runs], tmp_path_factory.mktemp("report"), profile="smoke")


def numbers(records, name: str, move: int) -> list[float]:
    return [record.result["moves"][move]["log_likelihood"]["0"] for record in clustering.rows_of(records, name)]


def as_if_scored_like_the_paper(records):
    """The same numbers, as if they came from a thousand sets of 300 to 600 points."""
    return [
        replace(record, experiment=replace(record.experiment, task=Clustering(readout=record.experiment.task.readout)))
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
    (row,) = (row for row in table.rows if row[0].found == "AE32 + PB + SA")
    first, second = numbers(records, "ae32-pb-sa", 1)
    mean = (first + second) / 2
    assert row[2].found == "2 seeds"
    assert row[4].found == f"{mean:.3f} ± {abs(first - second) / 2**0.5:.3f}"
    assert row[4].published == f"paper -1.899 ({mean + 1.8994:+.3f})"


def test_rows_without_a_run_are_not_in_the_table(runs):
    shown = [row[0].found for row in clustering.table_2(find_records([runs])).rows]
    assert shown == ["Set Transformer", "AE32 + PB + SA", "ours (claims, canonicalized)", "oracle"]


def test_the_best_of_each_shift_is_marked_once(runs):
    table = clustering.table_2(find_records([runs]))
    for column in range(3, len(table.columns)):
        marked = [row for row in table.rows if row[column].best]
        assert len(marked) == 1
        values = [float(row[column].found.split()[0]) for row in table.rows[:-1]]
        assert float(marked[0][column].found.split()[0]) == max(values)


def test_ablations_are_compared_with_the_full_network(runs):
    table = clustering.ablations(find_records([runs]))
    assert [row[0].found for row in table.rows] == ["AE32 + PB + SA, 2 steps", "with layer norm"]


def test_without_runs_of_an_ablation_there_is_no_such_table(runs):
    assert (
        clustering.ablations([record for record in find_records([runs]) if "ablation" not in str(record.path)]) is None
    )


def test_scikit_learn_stands_in_the_same_table(runs):
    rows = [
        dict(num_starts=10, milliseconds_per_set=70.0, moves=[dict(log_likelihood=-1.46 - move) for move in range(7)])
    ]
    table = clustering.refinement(find_records([runs]), rows)
    assert [cell.found for cell in table.rows[-1]] == [
        "scikit-learn, 10 starts", "", "", "-1.460", "", "", "-7.460", "70.00",
    ]  # fmt: skip


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
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
    assert "The paper used 50 000 steps of 10 sets" in text
    for name, _ in RUNS:
        assert name in text


def test_a_row_with_another_budget_is_named(runs):
    records = find_records([runs])
    other = replace(records[0].experiment, training=replace(records[0].experiment.training, steps=7000))
    changed = [replace(records[0], experiment=other), *records[1:]]
    named = clustering.in_words(clustering.name_of(changed[0]))
    said = f"every row 2 steps of 4 sets, the same sets for the same seed ({named}: 7 000 steps of 4 sets)"
    assert said in clustering.setting(changed)


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


def test_a_report_of_nothing_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 1
    assert "There is no finished run of profile quick" in (shown := capsys.readouterr().err)
    assert "picaset reproduce --profile quick --train" in shown


def test_rows_without_a_record_are_said_to_be_left_out(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for record in find_records([runs]):
        described = record.experiment.to_json() | {"profile": "quick"}
        copied = tmp_path / "results/runs" / record.path.name
        copied.mkdir(parents=True)
        (copied / "config.json").write_text(json.dumps(described))
        for name in ("environment.json", "metrics.jsonl", "result.json"):
            (copied / name).write_text((record.path / name).read_text())
    assert main(["reproduce", "table2"]) == 0
    shown = capsys.readouterr().out
    assert "clustering-ours, seed 0: from results/runs/clustering-ours-smoke-seed0, trained there in" in shown
    assert "clustering-sa-pb, seed 0: left out, there is no record of it; --train trains it" in shown
    assert "report/index.html" in shown
    assert "Table 2" in shown
    assert main(["reproduce", "table5"]) == 0
    shown = capsys.readouterr().out
    assert "table5: there is no finished run of it" in shown
    assert "Table 2" not in shown
    assert "Table 2" in (tmp_path / "report/index.html").read_text()  # the page has all that there is


def test_every_table_belongs_to_a_task_and_every_task_to_one():
    assert TASK_OF_TABLE.keys() == TABLES.keys()
    assert list(TASK_OF_TABLE.values()) == list(SECTIONS)
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
    assert table.markdown() == "| name | value |\n|---|---|\n| a | **1.0** (paper 2.0) |\n"


def test_where_a_table_does_not_fit_its_rows_are_told_and_no_number_is_cut():
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
