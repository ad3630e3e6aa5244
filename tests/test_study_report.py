"""The report of the controlled study: verdicts on the paper's claims, and tables of arms that are trained alike."""

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from scipy import stats

from picaset.lab.experiments import STUDY, experiment
from picaset.lab.reports.records import Record, find_records
from picaset.lab.reports.reproduction import write_report
from picaset.lab.reports.study import (
    CASCADE,
    CLAIMS,
    COMPARISONS,
    VERDICT_COLUMN,
    claims_table,
    compare,
    count_verdicts,
    draw_cascade_costs,
    draw_gains,
    read_step_costs,
    study_tables,
)
from picaset.lab.reports.verdicts import Difference

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "examples"))
import write_documents  # noqa: E402


def record(name: str, seed: int, novel: float) -> Record:
    """A finished run of the study, without training it."""
    result = {
        "accuracy": {"novel": novel, "familiar": 0.9, "novel_moved": novel - 0.1, "familiar_moved": 0.8},
        "training_toys": {"familiar": 0.99, "novel": 0.8},
        "examples": {"novel": 40, "familiar": 10},
        "by_viewpoint": [],
        "parameters": 1000,
        "seconds": 60.0,
        "steps": 18_000,
    }
    environment = {"hardware": "abacus", "commit": "abc", "data": "smallNORB, novel azimuths"}
    return Record(Path(name), experiment(name, profile="study", seed=seed), environment, result, [])


def runs(row: str, *novel: float, split: str = "azimuth") -> list[Record]:
    return [record(f"viewpoints-{split}-fair-{row}", seed, value) for seed, value in enumerate(novel)]


def verdict_of(records: list[Record]) -> str:
    table = claims_table(records)
    return next(
        row[VERDICT_COLUMN].measured
        for row in table.rows
        if row[0].measured == "Toys: three steps (PB3) are above Set Transformer at novel azimuths"
    )


def test_the_interval_is_welchs():
    generator = np.random.default_rng(0)
    first, second = generator.normal(3, 2, 5), generator.normal(1, 0.5, 7)
    difference = Difference.between(list(first), list(second))
    variances = first.var(ddof=1) / 5, second.var(ddof=1) / 7
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 4 + variances[1] ** 2 / 6)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances))
    assert difference.mean == pytest.approx(first.mean() - second.mean())
    assert (difference.low, difference.high) == pytest.approx((difference.mean - half, difference.mean + half))


def test_groups_without_any_spread_have_an_interval_of_length_zero():
    difference = Difference.between([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert (difference.low, difference.mean, difference.high) == (1.0, 1.0, 1.0)


def test_a_claim_holds_or_not_by_a_third_of_the_published_gain():
    control = runs("set-transformer", 0.70, 0.71, 0.72)
    assert verdict_of([*control, *runs("pb3", 0.80, 0.81, 0.82)]) == "holds"  # published 10.8, a third is 3.6
    assert verdict_of([*control, *runs("pb3", 0.70, 0.71, 0.72)]) == "does not hold"
    assert verdict_of([*control, *runs("pb3", 0.73, 0.75, 0.77)]).startswith("undecided: about ")
    assert verdict_of([*control, *runs("pb3", 0.80, 0.81)]) == "undecided: needs 3 seeds"


def test_as_many_runs_as_are_said_to_be_needed_decide_the_claim():
    difference = Difference.between([73.0, 75.0, 77.0], [70.0, 71.0, 72.0])
    needed = difference.runs_needed(published=10.8)
    half = stats.t.ppf(0.975, 2 * needed - 2) * difference.spread * np.sqrt(2 / needed)
    assert half < abs(difference.mean - 3.6) < half * np.sqrt(needed / (needed - 1)) * 1.2
    assert Difference.between([1.0], [2.0]).runs_needed(published=1.0) is None


def test_without_runs_there_is_no_table_of_claims():
    assert claims_table([]) is None
    assert claims_table(runs("pb3", 0.8, 0.8, 0.8)) is None


def test_runs_of_another_profile_decide_no_claim():
    control, others = runs("set-transformer", 0.7, 0.71, 0.72), runs("pb3", 0.8, 0.81, 0.82)
    for run in others:
        object.__setattr__(run.experiment, "profile", "quick")
    assert all(compare([*control, *others], claim) is None for claim in CLAIMS)


def test_every_claim_names_experiments_that_exist():
    for claim in CLAIMS:
        for name in (claim.better, claim.control):
            assert experiment(name, profile=claim.profile).name == name


def test_every_arm_of_the_study_is_in_one_table():
    shown = [comparison.prefix + arm for comparison in (*COMPARISONS, CASCADE) for arm in comparison.arms]
    assert sorted(shown) == sorted(STUDY)


def test_a_table_compares_each_arm_with_the_control_and_counts_seeds():
    records = [*runs("set-transformer", 0.70, 0.71, 0.72), *runs("pb3", 0.80, 0.81, 0.82), *runs("pb1", 0.75)]
    (table,) = study_tables(records, "viewpoints")
    rows = {row[0].measured: [cell.measured for cell in row] for row in table.rows}
    assert rows["PB3"][2:4] == ["3 seeds", "81.0 ± 1.0"]
    assert rows["PB3"][-1] == "+10.0 [+7.7, +12.3]"
    assert (rows["PB1"][2], rows["PB1"][-1], rows["Set Transformer"][-1]) == ("one seed", "+4.0", "")
    assert study_tables(records, "clustering") == []


def test_the_summary_counts_the_verdicts():
    table = claims_table([*runs("set-transformer", 0.70, 0.71, 0.72), *runs("pb3", 0.80, 0.81, 0.82)])
    assert count_verdicts(table) == f"of {len(CLAIMS)} claims, 1 holds, {len(CLAIMS) - 1} are undecided."


def test_gains_are_drawn_where_two_seeds_of_both_exist(tmp_path):
    assert draw_gains(runs("pb3", 0.8, 0.82), tmp_path) == {}
    ((_, paths),) = draw_gains([*runs("pb3", 0.8, 0.82), *runs("set-transformer", 0.7, 0.72)], tmp_path).items()
    assert all(path.stat().st_size > 1000 for path in paths)


def test_the_cost_of_a_cascade_is_that_of_all_its_training_steps(tmp_path, monkeypatch):
    def clustered(arm: str, seed: int) -> Record:
        result = {"moves": [{"oracle": -1.4, "log_likelihood": {"0": -1.7 - 0.01 * seed}}]}
        return Record(Path(arm), experiment(f"clustering-cascade-{arm}", profile="study", seed=seed), {}, result, [])

    records = [clustered(arm, seed) for arm in ("steps1", "steps2", "induced-steps1") for seed in range(2)]
    assert draw_cascade_costs(records, {}, tmp_path) == {}
    drawn = list[tuple[list[float], list[float]]]()
    draw = Axes.errorbar
    monkeypatch.setattr(
        Axes, "errorbar", lambda self, x, y, **options: (drawn.append((x, y)), draw(self, x, y, **options))
    )
    draw_cascade_costs(records, {"steps1": 6.0, "steps2": 9.0, "induced-steps1": 12.0}, tmp_path)
    assert drawn[0] == ([1.0, 1.5], pytest.approx([0.305, 0.305]))  # 10 000 steps of 6 ms are a minute
    assert drawn[-1][0] == [2.0]
    assert read_step_costs(tmp_path) == {}
    (tmp_path / "cascade_cost__abacus.json").write_text('{"rows": [{"arm": "steps1", "milliseconds": 6.0}]}')
    assert read_step_costs(tmp_path) == {"steps1": 6.0}


def test_the_page_opens_with_the_claims(tmp_path):
    records = [*runs("set-transformer", 0.70, 0.71, 0.72), *runs("pb3", 0.80, 0.81, 0.82)]
    report = write_report(records, [], tmp_path, origin="Shown from somewhere.")
    page = report.page.read_text()
    assert page.index("The claims of the paper") < page.index("Novel viewpoints")
    assert "What each pool adds to the same network" in page
    assert "## Claims, measurements and verdicts" in (tmp_path / "tables.md").read_text()


def test_marked_tables_in_the_documents_are_those_of_the_records():
    records = find_records([ROOT / "results/runs"])
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert write_documents.fill(path.read_text(), records) == path.read_text(), f"{path.name}: run make documents"
