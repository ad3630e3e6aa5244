"""Novel viewpoints: the table and the figures that records allow, and what a network looks at."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from picaset.cli import main
from picaset.figures import new_figure
from picaset.lab.data.views import CATEGORIES
from picaset.lab.experiments import TABLE_3, experiment
from picaset.lab.experiments.viewpoints import ROWS
from picaset.lab.reports.look import attend_to_toy, choose_views, draw_panel
from picaset.lab.reports.records import Record
from picaset.lab.reports.reproduction import all_tables, write_report
from picaset.lab.reports.viewpoints import NAMES, accuracy_by_distance, table_3
from picaset.lab.training.run_directory import RunDirectory

ENVIRONMENT = {"hardware": "abacus", "commit": "abc"}


def record(row: str, split: str, novel: float, *, real: bool = False, seed: int = 0, tested: int = 0) -> Record:
    """A finished run, without training it."""
    made = experiment(f"viewpoints-{split}-{row}-toys", profile="smoke", seed=seed)
    task = replace(made.task, num_tested=tested, data="small-norb" if real else "toys-tiny")
    name = made.name.removesuffix("-toys") if real else made.name
    accuracy = {"novel": novel, "familiar": 0.9, "novel_moved": novel / 2, "familiar_moved": 0.45}
    viewpoints = [
        {split: 0, "degrees": 0, "accuracy": 0.9, "examples": 10},
        {split: 6, "degrees": 20, "accuracy": novel, "examples": 30},
        {split: 28, "degrees": 20, "accuracy": 0.0, "examples": 10},
    ]
    result = {
        "accuracy": accuracy, "examples": {"novel": 40, "familiar": 10}, "by_viewpoint": viewpoints, "seconds": 120.0,
        "parameters": 12_345, "steps": 6,
    }  # fmt: skip
    chosen = replace(made, name=name, task=task)
    return Record(Path(name), chosen, ENVIRONMENT | {"data": task.describe_data()}, result, [])


REAL = [
    record("set-transformer", "azimuth", 0.70, real=True),
    record("set-transformer", "azimuth", 0.72, real=True, seed=1),
    record("set-transformer", "elevation", 0.60, real=True),
    record("pb3", "azimuth", 0.80, real=True),
    record("capsules", "elevation", 0.50, real=True),
    record("ours", "azimuth", 0.90, real=True),
]
TOYS = [record("pb3", "azimuth", 0.95), record("deepset-max", "azimuth", 0.3)]


def found(table) -> dict[str, list[str]]:
    return {row[0].measured: [cell.measured for cell in row[1:]] for row in table.rows}


def test_a_row_that_was_trained_differently_for_the_splits_says_both():
    azimuth, elevation = (record("ours", split, 0.9, real=True) for split in ("azimuth", "elevation"))
    longer = replace(elevation.experiment.training, steps=5000, precision="bf16-mixed")
    elevation = replace(elevation, experiment=replace(elevation.experiment, training=longer))
    assert table_3([azimuth, elevation], "small-norb").rows[0][-1].measured == "6 x 8 and 5 000 x 8 (bf16-mixed), 2 min"
    assert table_3([azimuth], "small-norb").rows[0][-1].measured == "6 x 8, 2 min"


def test_a_cell_is_the_mean_over_seeds_with_its_spread_beside_the_paper():
    table = table_3(REAL, "small-norb")
    (row,) = (row for row in table.rows if row[0].measured == "Set Transformer")
    assert row[2].measured == "2 and 1 seeds"
    assert (row[3].measured, row[3].published) == ("71.0 ± 1.4", "paper 75.19 (-4.2)")
    assert (row[7].measured, row[7].published) == ("60.0", "paper 74.26 (-14.3)")
    assert [cell.measured for cell in row[4:7]] == ["90.0 ± 0.0", "35.5 ± 0.7", "45.0 ± 0.0"]
    assert not any(cell.published for cell in row[4:7])
    assert row[-1].measured == "6 x 8, 2 min"
    assert row[1].measured == "12k"


def test_what_was_not_trained_is_a_gap_and_rows_without_any_run_are_left_out():
    rows = found(table_3(REAL, "small-norb"))
    assert list(rows) == [NAMES[name] for name in ("set-transformer", "pb3", "capsules", "ours")]
    assert rows["AE + PB3"][6:10] == ["-"] * 4
    assert rows["EM capsules"][2:6] == ["-"] * 4


def test_capsules_stand_beside_their_own_paper_and_rows_of_ours_beside_none():
    table = table_3(REAL, "small-norb")
    published = {row[0].measured: (row[3].published, row[7].published) for row in table.rows}
    assert published["EM capsules"] == ("paper 86.5", "paper 87.7 (-37.7)")
    assert published[NAMES["ours"]] == ("", "")


def test_the_stand_in_has_a_table_of_its_own_without_published_numbers():
    first, second = all_tables([*REAL, *TOYS], [])
    assert first.title.startswith("Table 3: ")
    assert second.title.startswith("Table 3 on the stand-in: ")
    assert found(first)["AE + PB3"][2] == "80.0"
    assert found(second)["AE + PB3"][2] == "95.0"
    assert "paper" not in second.markdown()
    assert "compare the rows with each other, not with the paper" in second.notes[1]


def test_what_was_tested_on_part_of_the_photographs_says_so_and_does_not_stand_beside_the_paper():
    table = table_3([record("pb3", "azimuth", 0.8, real=True, tested=500)], "small-norb")
    assert "smallNORB, 500 test images of each kind" in table.notes[0]
    assert "paper" not in table.markdown()


def test_the_best_of_each_column_is_marked_once():
    table = table_3(REAL, "small-norb")
    assert [row[0].measured for row in table.rows if row[3].best] == [NAMES["ours"]]
    assert [row[0].measured for row in table.rows if row[7].best] == ["Set Transformer"]


def test_the_notes_say_whether_the_cascade_is_worth_its_steps_where_both_rows_are_there():
    notes = table_3(REAL, "small-norb").notes
    assert "AE + PB3 minus Set Transformer (a single seed, spread unknown): novel azimuths +9.0." in notes
    assert not any("AE + PB1" in note for note in notes)
    seeded = [*REAL, record("pb3", "azimuth", 0.60, real=True, seed=1)]
    (told,) = (note for note in table_3(seeded, "small-norb").notes if "minus Set Transformer" in note)
    assert told == "AE + PB3 minus Set Transformer: novel azimuths -1.0 [-122.9, +120.9]."


def test_without_runs_there_is_no_table():
    assert table_3(TOYS, "small-norb") is None
    assert table_3([], "toys") is None


def test_viewpoints_of_one_distance_count_by_their_examples():
    assert accuracy_by_distance(TOYS[:1]) == {0: pytest.approx(90), 20: pytest.approx(100 * 0.95 * 30 / 40)}


def test_the_table_asks_for_every_row_of_both_splits_on_both_data_sets():
    names = {name for name, _ in TABLE_3}
    assert len(names) == 4 * len(ROWS)
    assert {seed for name, seed in TABLE_3 if name == "viewpoints-azimuth-pb3"} == {0, 1, 2}
    assert {seed for name, seed in TABLE_3 if name == "viewpoints-azimuth-capsules"} == {0}
    assert NAMES.keys() == ROWS.keys()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Networks of every kind, as a run leaves them, without training."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("viewpoints-azimuth-pb3", "viewpoints-elevation-ours-stereo", "viewpoints-azimuth-deepset-mean"):
        torch.manual_seed(0)
        made = experiment(name, profile="smoke")
        directory = RunDirectory.create(folder / name, made, ENVIRONMENT)
        made.task.build_network().save_pretrained(directory.network("final"))
    return folder


def test_the_page_has_the_figures_and_what_a_toy_network_looks_at(runs, tmp_path):
    with_network = replace(TOYS[0], path=runs / "viewpoints-azimuth-pb3")
    report = write_report([*REAL, TOYS[1], with_network], [], tmp_path, origin="")
    assert [path.stem for path in report.figures] == [
        "accuracy_by_distance", "accuracy_by_distance_toys", "look_heads", "look_steps",
    ]  # fmt: skip
    text = re.sub(r"\s+", " ", report.page.read_text())
    assert "Novel viewpoints" in text
    assert "Clustering under shift" not in text
    assert all(path.with_suffix(".png").stat().st_size > 5_000 for path in report.figures)


def test_without_a_network_of_a_run_the_page_shows_what_the_shipped_one_looks_at(tmp_path):
    report = write_report(TOYS, [], tmp_path, origin="")
    assert [path.stem for path in report.figures] == ["accuracy_by_distance_toys", "look_heads", "look_steps"]
    assert "on an airplane that training never had" in re.sub(r"\s+", " ", report.page.read_text())


def test_photographs_alone_show_no_toy(tmp_path):
    report = write_report(REAL, [], tmp_path, origin="")
    assert [path.stem for path in report.figures] == ["accuracy_by_distance"]


@pytest.mark.parametrize("name", ["viewpoints-azimuth-pb3", "viewpoints-elevation-ours-stereo"])
def test_looking_shows_one_toy_along_the_split_with_attention_that_sums_to_one(runs, name):
    made = experiment(name, profile="smoke")
    views = choose_views(made.task, "truck", seed=3)
    assert {CATEGORIES[label] for label in views.category.tolist()} == {"truck"}
    for label in ("instance", "lighting", "azimuth" if made.task.split == "elevation" else "elevation"):
        assert len(getattr(views, label).unique()) == 1
    along = getattr(views, made.task.split).tolist()
    assert along == sorted(set(along))
    seen = attend_to_toy(made.task, made.task.read_network(RunDirectory(runs / name).network("final")), views)
    assert seen.attention.shape == (3, len(views), 2, 64)
    assert_close(seen.attention.sum(dim=-1), torch.ones(3, len(views), 2))
    assert any(seen.novel)
    assert not all(seen.novel)
    assert seen.crops.shape == (len(views), 32, 32)


def test_heat_lies_over_the_patch_that_is_attended_to():
    axis = new_figure(2, 2).subplots()
    weights = torch.full((64,), 0.5 / 63)
    weights[8 * 2 + 5] = 0.5  # third row, sixth column
    heat = draw_panel(axis, torch.zeros(32, 32, dtype=torch.uint8), weights, top=8.0)
    shown = heat.get_array()
    assert float(shown[2, 5]) == pytest.approx(32)
    assert int((shown > 1).sum()) == 1
    assert heat.get_alpha()[2, 5] == pytest.approx(0.85)
    assert heat.get_extent() == [0, 32, 32, 0]
    assert draw_panel(axis, torch.zeros(32, 32, dtype=torch.uint8), None, top=8.0) is None


def test_the_seed_chooses_the_toy():
    task = experiment("viewpoints-azimuth-pb3", profile="smoke").task
    chosen = {tuple(choose_views(task, None, seed).category.tolist()) for seed in range(8)}
    assert len(chosen) > 1


def test_the_command_writes_svg_and_png(runs, tmp_path, capsys):
    assert main(["look", str(runs / "viewpoints-elevation-ours-stereo"), "--out", str(tmp_path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    names = ["look_heads.svg", "look_heads.png", "look_steps.svg", "look_steps.png"]
    assert [Path(path).name for path in figures] == names
    assert all(Path(path).stat().st_size > 5_000 for path in figures)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["viewpoints-azimuth-deepset-mean"], "A DeepSets has no attention to draw"),
        (
            ["viewpoints-azimuth-pb3", "--category", "boat"],
            "category must be one of animal, human, airplane, truck, car",
        ),
        (["viewpoints-azimuth-pb3", "--which", "best"], "has no network"),
        (["nowhere"], "is not a run directory: it has no config.json"),
        (
            ["clustering"],
            "is a run of the task 'clustering', which has no pictures. Choose a run of viewpoints or scenes.",
        ),
    ],
)
def test_runs_that_cannot_be_looked_at_give_one_line(runs, tmp_path, capsys, arguments, message):
    if arguments == ["clustering"] and not (runs / "clustering").exists():
        RunDirectory.create(runs / "clustering", experiment("clustering-ours", profile="smoke"), ENVIRONMENT)
    name, *rest = arguments
    assert main(["look", str(runs / name), *rest, "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
