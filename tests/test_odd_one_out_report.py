"""Table 4 and its figures from the records of runs: what is there is shown, and pictures of drawn faces only."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from picaset.cli import main
from picaset.lab.experiments import TABLES, experiment
from picaset.lab.experiments.odd_one_out import ROWS, SEEDED, VARIANTS
from picaset.lab.networks.odd_one_out import ODD_FACES, OddOneOutNetwork, odd_faces_network
from picaset.lab.reports.odd_faces import ScoredSet, draw_odd_faces, sample_scored_sets, stored_sets
from picaset.lab.reports.odd_one_out import (
    NAMES,
    build_tables,
    compare_claims,
    draw_figures,
    mean_by_size,
    table_4,
    variants,
)
from picaset.lab.reports.published import TABLE_4
from picaset.lab.reports.records import Record, find_records
from picaset.lab.reports.reproduction import all_tables, write_report
from tests.short_runs import import_example, train_shortly


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with one run, of two steps."""
    return train_shortly([("odd-one-out-sa-gpb", 0)], tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def record(trained) -> Record:
    return find_records([trained])[0]


def as_if(record: Record, name: str, *, seed: int = 0, auroc: float = 0.7) -> Record:
    """The record, as if it were of another experiment at the size of the paper's, with these numbers."""
    chosen = experiment(name, seed=seed)
    found = dict(num_sets=200, auroc=auroc, aupr=auroc - 0.3, top1=auroc - 0.2)
    data = "CelebA, 8400-image subset" if "celeba" in name else "4096 drawn faces"
    return replace(record, experiment=chosen, result=record.result | {"test": found, "data": data})


def many(record: Record, prefix: str, rows: dict[str, list[float]]) -> list[Record]:
    return [
        as_if(record, f"{prefix}-{name}", seed=seed, auroc=auroc)
        for name, seeds in rows.items()
        for seed, auroc in enumerate(seeds)
    ]


REAL, DRAWN = "odd-one-out-celeba", "odd-one-out"
SOME = {"sa-pma": [0.70, 0.72], "sa-pb": [0.80, 0.82], "sa-gpb": [0.81, 0.79], "rff-pb": [0.6]}


def test_a_cell_is_the_mean_over_seeds_with_its_spread_beside_the_paper(record):
    table = table_4(many(record, REAL, SOME), "celeba")
    assert table.title == "Table 4: the odd one among real faces (CelebA, 8400-image subset)"
    (row,) = (row for row in table.rows if row[0].measured == "SA + PB")
    assert [cell.measured for cell in row[2:4]] == ["2 seeds", "3000"]
    assert (row[5].measured, row[5].published) == ("0.810 ± 0.014", "paper 0.793 (+0.017)")
    assert (row[6].measured, row[6].published) == ("0.510 ± 0.014", "paper 0.472 (+0.038)")
    assert row[7].published == ""  # the paper does not count the sets
    assert [row[0].measured for row in table.rows] == ["SA + PMA", "rFF + PB", "SA + PB", "SA + GPB", "random guessing"]
    assert [cell.published for cell in table.rows[-1][5:]] == ["paper 0.5", "paper 0.125", ""]


def test_published_numbers_never_stand_beside_the_stand_in(record):
    table = table_4(many(record, DRAWN, SOME), "drawn")
    assert not any(cell.published for row in table.rows for cell in row)
    assert "4096 drawn faces" in table.title
    assert "the numbers cannot be compared with the paper's" in table.notes[0]


def test_what_was_scored_on_fewer_sets_does_not_stand_beside_the_paper(record):
    few = [as_if(record, f"{REAL}-sa-pb")]
    few = [replace(one, experiment=experiment(f"{REAL}-sa-pb", profile="smoke")) for one in few]
    assert not any(cell.published for row in table_4(few, "celeba").rows for cell in row)


def test_the_two_data_sets_are_in_tables_of_their_own(record):
    runs = many(record, REAL, {"sa-pb": [0.9]}) + many(record, DRAWN, {"sa-gpb": [0.8]})
    real, drawn = build_tables(runs, [])
    assert [row[0].measured for row in real.rows] == ["SA + PB", "random guessing"]
    assert [row[0].measured for row in drawn.rows] == ["SA + GPB", "random guessing"]
    assert build_tables([], []) == []


def test_a_run_whose_name_hides_its_data_is_in_no_table(record):
    disguised = as_if(record, f"{DRAWN}-sa-pb")
    disguised = replace(disguised, experiment=replace(disguised.experiment, name=f"{REAL}-sa-pb"))
    assert table_4([disguised], "celeba") is None
    assert table_4([disguised], "drawn") is None


def test_the_comparisons_follow_the_numbers(record):
    def told(**rows: list[float]) -> str:
        return " ".join(
            compare_claims(many(record, REAL, {name.replace("_", "-"): of for name, of in rows.items()}), "celeba")
        )

    assert "SA + PB minus SA + PMA: AUROC +0.100 [+0.039, +0.161]" in told(sa_pma=[0.7, 0.72], sa_pb=[0.8, 0.82])
    assert "SA + PB minus SA + PMA: AUROC -0.100 [-0.161, -0.039]" in told(sa_pma=[0.8, 0.82], sa_pb=[0.7, 0.72])
    assert "SA + GPB minus SA + PB: AUROC +0.010 [-0.051, +0.071]" in told(sa_pb=[0.8, 0.82], sa_gpb=[0.81, 0.83])
    assert "(a single seed, spread unknown): AUROC +0.050, AUPR +0.050, top 1 +0.050." in told(
        rff_pma=[0.6], rff_pb=[0.65]
    )
    assert told(sa_pb=[0.8, 0.82]) == ""


def test_questions_that_no_run_speaks_to_are_not_asked(record):
    notes = table_4(many(record, REAL, {"sa-pb": [0.8], "sa-gpb": [0.8]}), "celeba").notes
    assert not any("Is PB better than PMA?" in note for note in notes)
    assert any("Is GPB better than PB?" in note for note in notes)


def test_the_authors_loss_is_compared_with_the_row_that_it_changes(record):
    runs = many(record, REAL, {"sa-gpb": [0.8, 0.82], "authors-loss": [0.6]})
    table = variants(runs, "celeba")
    assert [row[0].measured for row in table.rows] == ["SA + GPB", "SA + GPB, the authors' loss"]
    assert "softmax and then a binary loss" in table.notes[0]
    assert any(
        "What is the effect of the authors' loss?" in told and "AUROC -0.210" in told
        for told in compare_claims(runs, "celeba")
    )
    assert variants(runs[:2], "celeba") is None
    assert variants(runs[2:], "celeba") is None


def test_only_sizes_that_every_seed_was_scored_on_have_a_mean(record):
    first = record.result["by_size"]
    other = replace(record, result=record.result | {"by_size": [dict(row, auroc=1.0) for row in first[:2]]})
    means = mean_by_size([record, other], "auroc")
    assert list(means) == [row["set_size"] for row in first[:2]]
    assert means[first[0]["set_size"]] == pytest.approx((1 + first[0]["auroc"]) / 2)


def test_a_report_has_every_figure_and_pictures_of_drawn_faces_only(trained, record, tmp_path):
    report = write_report(find_records([trained]), [trained], tmp_path / "drawn", origin="")
    names = {path.stem for path in report.figures}
    assert names == {"odd_one_out_faces", "odd_one_out_by_size_drawn", "odd_one_out_learning_drawn"}
    assert all(path.with_suffix(".png").is_file() for path in report.figures)
    text = report.page.read_text()
    assert "Odd one out" in text
    assert "Clustering under shift" not in text
    figures = draw_figures(many(record, REAL, SOME), tmp_path / "real")
    assert {svg.stem for svg, _ in figures.values()} == {"odd_one_out_by_size_celeba", "odd_one_out_learning_celeba"}
    assert not list((tmp_path / "real").rglob("*faces*"))
    assert all("<image" not in svg.read_text() for svg, _ in figures.values())


def test_all_experiments_share_one_list_of_tables(record):
    runs = many(record, REAL, SOME)
    assert [table.title for table in all_tables(runs, [])] == [table.title for table in build_tables(runs, [])]


def test_every_row_of_the_table_has_a_name_and_a_published_number():
    assert TABLE_4.keys() == ROWS.keys()
    assert NAMES.keys() == ROWS.keys() | VARIANTS.keys()
    for prefix, more_seeds in ((REAL, 2), (DRAWN, 0)):
        of_table = {(name, seed) for name, seed in TABLES["table4"] if name.removeprefix(prefix + "-") in NAMES}
        assert len(of_table) == len(ROWS) + more_seeds * len(SEEDED) + len(VARIANTS)


# The figure of faces


def test_stored_sets_are_those_of_the_run(record):
    sets, shown = stored_sets(record), record.result["shown"]
    assert len(sets) == len(shown["odd"]) == 20
    faces = record.experiment.task.faces()
    assert np.array_equal(sets[3].faces, faces.images[shown["members"][3]])
    assert sets[3].odd == shown["odd"][3]
    assert sets[3].was_found == (int(np.argmax(shown["scores"][3])) == shown["odd"][3])


def test_real_faces_are_put_into_no_figure(record):
    with pytest.raises(ValueError, match="is not a run on drawn faces; figures never show real faces"):
        stored_sets(as_if(record, f"{REAL}-sa-gpb"))


def scored(chosen: int, odd: int = 0) -> ScoredSet:
    scores = np.full(3, 0.1)
    scores[chosen] = 0.8
    return ScoredSet(np.zeros((3, 64, 64, 3), dtype=np.uint8), scores, odd, ("Bald", "Bangs"))


def test_found_and_missed_sets_are_apart_and_counted(tmp_path):
    svg, png = draw_odd_faces([*[scored(0)] * 7, scored(1), scored(2)], tmp_path)
    assert png.stat().st_size > 10_000
    text = svg.read_text()
    assert "odd face found in 7 of 9 sets; the first 4 shown" in text
    assert "odd face missed in 2 of 9 sets; all shown" in text


@pytest.mark.parametrize(("chosen", "absent"), [(0, "missed"), (1, "found")])
def test_a_kind_of_set_that_there_is_none_of_has_no_place(tmp_path, chosen, absent):
    svg, _ = draw_odd_faces([scored(chosen)], tmp_path)
    assert f"odd face {absent}" not in svg.read_text()


def test_a_figure_of_no_sets_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected at least one set; got none"):
        draw_odd_faces([], tmp_path)
    assert list(tmp_path.iterdir()) == []


# Shipped weights


ship = import_example("ship_odd_faces").ship


def test_a_finished_run_on_drawn_faces_becomes_a_network_with_its_card(trained, record, tmp_path):
    ship(record.path, tmp_path / "shipped")
    network = OddOneOutNetwork.from_pretrained(tmp_path / "shipped")
    assert {str(tensor.dtype) for tensor in network.state_dict().values()} == {"torch.float16"}
    card = (tmp_path / "shipped/README.md").read_text()
    assert "`picaset train odd-one-out-sa-gpb --profile smoke --threads 1`" in card
    found = record.result["test"]
    assert f"| as trained | {found['auroc']:.3f} | {found['aupr']:.3f} | {found['top1']:.3f} |" in card
    sets = sample_scored_sets(network.float(), num_sets=3, set_size=5, seed=0)
    assert [one.scores.sum() for one in sets] == pytest.approx([1, 1, 1])


def test_a_run_on_real_faces_is_never_shipped(record, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("environment.json", "metrics.jsonl", "result.json"):
        (tmp_path / "run" / name).write_text((record.path / name).read_text())
    (tmp_path / "run/config.json").write_text(json.dumps(experiment(f"{REAL}-sa-gpb", profile="smoke").to_json()))
    with pytest.raises(ValueError, match="is not a run on drawn faces; only networks trained on generated data are"):
        ship(tmp_path / "run", tmp_path / "shipped")
    (tmp_path / "run/result.json").unlink()
    with pytest.raises(ValueError, match="is not finished; finish it with: picaset train --resume"):
        ship(tmp_path / "run", tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


def test_shipped_weights_are_small_and_have_a_card():
    assert sum(path.stat().st_size for path in ODD_FACES.iterdir()) < 8_000_000
    assert "Trained on generated data only" in (ODD_FACES / "README.md").read_text()


def test_the_shipped_network_finds_odd_faces_that_training_never_had():
    sets = sample_scored_sets(odd_faces_network(), num_sets=100, set_size=8, seed=5)
    assert sum(one.was_found for one in sets) > 25  # of which guessing finds 12 or 13


def test_the_command_says_what_it_found_and_draws_it(tmp_path, capsys):
    assert main(["faces", "--sets", "6", "--size", "5", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sets"] == 6
    assert 0 <= found["found"] <= 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd_faces.png", "odd_faces.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sets", "0"], "num_sets must be at least 1; got 0"),
        (["--seed", "-1"], "seed must not be negative; got -1."),
        (["--size", "2"], "A set must have from 3 to 64 images; got 2."),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path, capsys, arguments, message):
    assert main(["faces", *arguments, "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_reproducing_table_4_without_real_data_trains_the_stand_in_and_says_what_is_left_out(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(TABLES, "table4", [(f"{REAL}-sa-pb", 0), (f"{DRAWN}-sa-pb", 0)])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/clustering-scikit-learn-smoke.json").write_text("{}")
    assert main(["reproduce", "table4", "--profile", "smoke", "--fresh"]) == 0
    shown = capsys.readouterr().out
    assert f"{REAL}-sa-pb, seed 0: left out. Real data is needed; set PICASET_DATA" in shown
    assert "Table 4 on the stand-in" in shown
    assert "Table 4: the odd one among real faces" not in shown
