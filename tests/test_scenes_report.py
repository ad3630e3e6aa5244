"""Report of the scenes experiment: tables, figures, and settings of the runs."""

from dataclasses import replace

import pytest

from picaset.cli import main
from picaset.lab.experiments import experiment
from picaset.lab.reports import scenes as tables
from picaset.lab.reports.look import look
from picaset.lab.reports.records import find_records
from picaset.lab.reports.reproduction import write_report
from picaset.lab.training.run_directory import run_name
from tests.short_runs import train_shortly

RUNS = [("scenes-pb3", 0), ("scenes-pb3", 1), ("scenes-pb3-reweighted", 0), ("scenes-dspn30", 0),
        ("scenes-set-transformer", 0), ("scenes-pb3-likelihood", 0), ("scenes-pb3-waves", 0)]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_shortly(RUNS, tmp_path_factory.mktemp("runs"))


def test_every_run_is_in_its_table(runs):
    records = find_records([runs])
    found = tables.table_5(records)
    assert [row[0].measured for row in found.rows] == [
        "DSPN, 30 steps in testing", "Set Transformer", "PB3", "PB3, coordinates reweighted",
        "PB3, by likelihood",
    ]  # fmt: skip
    assert [row[2].measured for row in found.rows] == ["one seed", "one seed", "2 seeds", "one seed", "one seed"]
    values = [100 * record.result["average_precision"]["inf"] for record in tables.find_runs(records, "pb3")]
    assert found.rows[2][3].measured.startswith(f"{sum(values) / 2:.1f} ±")
    assert [row[0].measured for row in tables.parts(records).rows] == [
        "PB3, by likelihood", "PB3, positions as waves"
    ]  # fmt: skip
    assert tables.on_clevr(records) is None


def test_nothing_published_stands_beside_the_stand_in(runs):
    found = tables.table_5(find_records([runs]))
    assert not any(cell.published for row in found.rows for cell in row)
    assert "89.6" not in found.markdown()


def test_steps_in_testing_are_those_of_the_decoder(runs):
    found = tables.by_steps(find_records([runs]))
    assert [row[0].measured for row in found.rows] == [
        "DSPN, 30 steps in testing", "PB3", "PB3, coordinates reweighted", "PB3, by likelihood"
    ]  # fmt: skip
    assert found.columns[1:4] == ["1 step", "2 steps", "3 steps"]
    assert found.rows[0][1].measured == ""


def test_one_training_in_two_rows_is_shown_with_other_steps_once(runs):
    records = find_records([runs])
    (thirty,) = tables.find_runs(records, "dspn30")
    ten = replace(thirty, experiment=replace(thirty.experiment, name="scenes-dspn10"))
    assert [row[0].measured for row in tables.by_steps([ten, thirty]).rows] == ["DSPN, 10 steps"]
    between = replace(thirty, experiment=experiment("scenes-slot-attention", profile="smoke"))
    again = replace(thirty, experiment=replace(ten.experiment, name="scenes-pb3"))  # the same training, far below
    shown = [row[0].measured for row in tables.by_steps([again, between, ten]).rows]
    assert shown == ["DSPN, 10 steps", "Slot Attention"]
    task = replace(ten.experiment.task, num_scenes=17)
    other = replace(thirty, experiment=replace(ten.experiment, task=task))
    assert len(tables.by_steps([other, thirty]).rows) == 2  # equal numbers do not make one training of two


def test_steps_in_training_are_those_of_the_records(runs):
    records = find_records([runs])
    (descent,) = tables.find_runs(records, "dspn30")
    implicit = experiment("scenes-idspn", profile="quick")
    told = tables.by_steps([*records, replace(descent, experiment=implicit)]).notes[0]
    assert told.endswith("Steps in training: cascades and slots 3, descents 4 or 20.")
    assert tables.by_steps([descent]).notes[0].endswith("Steps in training: descents 4.")


def test_rates_are_described_for_most_rows_and_then_for_those_that_differ(runs):
    records = find_records([runs])
    rate = records[0].experiment.training.learning_rate
    assert tables.learning_rates(records) == f"Adam up to {rate:g}"
    (record,) = tables.find_runs(records, "set-transformer")
    quick = [experiment(f"scenes-{row}", profile="quick") for row in ("pb3", "slot-attention", "dspn10", "idspn")]
    told = tables.learning_rates([replace(record, experiment=one) for one in quick])
    assert told == "Adam up to 0.002, Slot Attention up to 0.0004, iDSPN up to 0.001"


@pytest.mark.parametrize("objective", ["", "-reweighted", "-likelihood"])
def test_published_numbers_have_a_column_of_their_own_whatever_was_minimised(runs, objective):
    (record,) = tables.find_runs(find_records([runs]), "set-transformer")
    renamed = replace(record, experiment=replace(record.experiment, name=f"scenes-clevr-set-transformer{objective}"))
    rendered = replace(renamed, environment=renamed.environment | {"data": "small rendered CLEVR, 3 images, 64 x 64"})
    found = tables.on_clevr([rendered])
    assert found.title.startswith("Table 5 on small rendered CLEVR: average precision")
    assert found.rows[0][-1].measured == "50.0 / 16.2 / 2.0"
    assert "paper" in found.columns[-1]
    assert "for the published loss, all of CLEVR and the published budget" in found.notes[-1]


def test_the_page_has_a_section_with_tables_and_figures(runs, tmp_path):
    report = write_report(find_records([runs]), [runs], tmp_path, origin="")
    page = report.page.read_text()
    assert "Objects in scenes" in page
    assert {path.stem for path in report.figures} == {"scene_predictions", "scene_attention"}


def test_predictions_and_attention_of_a_network_are_drawn(runs, tmp_path, capsys):
    figures = look(runs / run_name("scenes-pb3", "smoke", 0), tmp_path / "cascade", which="best")
    assert len(figures) == 2
    descent = look(runs / run_name("scenes-dspn30", "smoke", 0), tmp_path / "descent")
    assert len(descent) == 1, "a descent looks at nothing"
    assert main(["look", str(runs / run_name("scenes-pb3", "smoke", 0)), "--category", "truck"]) == 1
    assert "a category can be chosen for viewpoints only; got 'truck'." in capsys.readouterr().err
