"""The controlled study: the paper's claims with verdicts, tables of arms that differ in one thing, and figures."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from picaset.figures import COLOURS, GRID, REFERENCE, new_figure, write_figure
from picaset.files import read_json
from picaset.lab.experiments.study import CASCADES
from picaset.lab.reports.clustering import likelihoods, oracle
from picaset.lab.reports.page import Cell, Figures, Table, format_mean, group_digits, row_heading
from picaset.lab.reports.published import TABLE_2, TABLE_3, TABLE_4, TABLE_5
from picaset.lab.reports.records import Record, committed_records, runs_named
from picaset.lab.reports.verdicts import MIN_RUNS, SHARE, Difference
from picaset.lab.tasks.clustering import SHIFTS


@dataclass(frozen=True)
class Measure:
    """A number of a finished run."""

    label: str
    read: Callable[[Record], float]
    digits: int = 1


def accuracy(label: str, group: str, key: str) -> Measure:
    return Measure(label, lambda record: 100 * record.result[group][key])


NOVEL = accuracy("test toys, novel", "accuracy", "novel")
LIKELIHOOD = Measure("log-likelihood", lambda record: likelihoods([record], move=0)[0], digits=3)
AUROC = Measure("AUROC", lambda record: record.result["test"]["auroc"], digits=3)
SHIFTED = Measure(
    "mean over shifts",
    lambda record: statistics.fmean(likelihoods([record], move=move)[0] for move in range(1, len(SHIFTS))),
    digits=3,
)
MOVED = Measure(
    "novel, moved minus centred",
    lambda record: 100 * (record.result["accuracy"]["novel_moved"] - record.result["accuracy"]["novel"]),
)
PRECISION = Measure("AP within 1", lambda record: 100 * record.result["average_precision"]["1"])
BELOW_ORACLE = Measure(
    "nats below the oracle", lambda record: oracle([record]) - likelihoods([record], move=0)[0], digits=3
)


@dataclass(frozen=True)
class Claim:
    """A gain that the paper reports, and the two experiments that test it."""

    text: str
    better: str
    control: str
    measure: Measure
    published: float
    """Published gain; 0 if the paper gives no number."""
    profile: str = "study"


def gain(table: Mapping[str, Sequence[float]], better: str, control: str, column: int) -> float:
    return table[better][column] - table[control][column]


def shifted_gain(better: str, control: str) -> float:
    return statistics.fmean(gain(TABLE_2, better, control, column) for column in range(1, len(SHIFTS)))


CLAIMS = [
    Claim("Clusters: PICASO with self-attention (PB + SA) is above Set Transformer without a shift",
          "clustering-ae32-pb-sa", "clustering-set-transformer", LIKELIHOOD,
          gain(TABLE_2, "ae32-pb-sa", "set-transformer", 0)),
    Claim("Clusters: PICASO with self-attention is more robust to shifts, mean of six", "clustering-ae32-pb-sa",
          "clustering-set-transformer", SHIFTED, shifted_gain("ae32-pb-sa", "set-transformer")),
    Claim("Clusters: PICASO alone (PB) is more robust to shifts, mean of six", "clustering-ae32-pb",
          "clustering-set-transformer", SHIFTED, shifted_gain("ae32-pb", "set-transformer")),
    *(
        Claim(f"Toys: three steps (PB3) are above {name} at novel {split}s", f"viewpoints-{split}-fair-pb3",
              f"viewpoints-{split}-fair-{control}", NOVEL, gain(TABLE_3, "pb3", control, column))
        for control, name in (("set-transformer", "Set Transformer"), ("pb1", "one step (PB1)"))
        for column, split in enumerate(("azimuth", "elevation"))
    ),
    Claim("Toys: three steps lose less than Set Transformer when the image is moved", "viewpoints-azimuth-centre-pb3",
          "viewpoints-azimuth-centre-set-transformer", MOVED, 0.0),
    Claim("Faces: PICASO (PB) is above one attention step (PMA)", "odd-one-out-celeba-pool-pb-concatenated",
          "odd-one-out-celeba-pool-pma-concatenated", AUROC, gain(TABLE_4, "sa-pb", "sa-pma", 0)),
    Claim("Faces: generalized PICASO (GPB) is above PICASO", "odd-one-out-celeba-pool-gpb-mapped",
          "odd-one-out-celeba-pool-pb-concatenated", AUROC, gain(TABLE_4, "sa-gpb", "sa-pb", 0)),
    Claim("Scenes: three steps (PB3) are above Set Transformer", "scenes-pb3-likelihood",
          "scenes-set-transformer-likelihood", PRECISION, gain(TABLE_5, "pb3", "set-transformer", 1), profile="quick"),
    Claim("Ablation: the residual helps", "clustering-ae32-pb-sa", "clustering-ablation-no-residual",
          LIKELIHOOD, 0.0, profile="quick"),
    Claim("Ablation: the feed-forward layer helps", "clustering-ae32-pb-sa", "clustering-ablation-no-feed-forward",
          LIKELIHOOD, 0.0, profile="quick"),
]  # fmt: skip
"""Claims of the paper that compare two networks. Its one-step cascade PB1 is PMA, Set Transformer's pool."""


def runs_for(records: Sequence[Record], experiment: str, profile: str) -> list[Record]:
    return [record for record in runs_named(records, experiment) if record.experiment.profile == profile]


def compare(records: Sequence[Record], claim: Claim) -> Difference | None:
    """Return the measured difference of a claim, or None if a group has no run."""
    groups = [
        [claim.measure.read(record) for record in runs_for(records, name, claim.profile)]
        for name in (claim.better, claim.control)
    ]
    return Difference.between(*groups) if all(groups) else None


VERDICT_COLUMN = 1
VERDICTS = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "undecided": ("is undecided", "are undecided"),
}
"""Words of a summary for one claim and for several, for each verdict."""


def claims_table(records: Sequence[Record]) -> Table | None:
    """Build the table of claims: verdict, published gain, measured gain with its interval, and budget.

    Return None if no claim has runs of both experiments.
    """
    if not any(compare(records, claim) for claim in CLAIMS):
        return None
    rows = list[list[Cell]]()
    for claim in CLAIMS:
        digits = claim.measure.digits
        published = f"{claim.published:+.{digits}f}" if claim.published else "no number"
        difference = compare(records, claim)
        if difference is None:
            verdict, *cells = "undecided", "no runs yet", "", ""
        else:
            training = runs_for(records, claim.better, claim.profile)[0].experiment.training
            budget = f"{group_digits(training.steps)} x {training.batch_size}"
            counts = " and ".join(map(str, dict.fromkeys(difference.runs)))
            verdict, cells = describe_verdict(difference, claim), [difference.format(digits), counts, budget]
        rows.append([Cell(text) for text in (claim.text, verdict, published, *cells)])
    return Table(
        "Claims, measurements and verdicts",
        ["claim", "verdict", "published gain", "measured gain", "seeds", "steps x batch"],
        rows,
        [
            "Measured: difference of the means over seeds, with Welch's 95 % interval. A claim holds if the interval "
            f"lies above a third of the published gain, does not hold if it lies below, and is undecided otherwise or "
            f"with fewer than {MIN_RUNS} seeds. Units: log-likelihood per point, accuracy in percent, AUROC, average "
            "precision in percent.",
            "The paper's PB1 is a single step, which by its own definition is PMA, the pool of Set Transformer; its "
            "Table 3 has PB1 four points above Set Transformer.",
        ],
    )


def count_verdicts(table: Table) -> str:
    """Summarize the table of claims in a sentence."""
    verdicts = [row[VERDICT_COLUMN].measured.split(":")[0] for row in table.rows]
    counts = [
        f"{verdicts.count(verdict)} {several if verdicts.count(verdict) > 1 else one}"
        for verdict, (one, several) in VERDICTS.items()
        if verdict in verdicts
    ]
    return f"of {len(verdicts)} claims, {', '.join(counts)}."


def describe_verdict(difference: Difference, claim: Claim) -> str:
    """Return the verdict and, if it is undecided, what would decide it."""
    verdict = difference.verdict(claim.published)
    if verdict != "undecided":
        return verdict
    if min(difference.runs) < MIN_RUNS:
        return f"undecided: needs {MIN_RUNS} seeds"
    needed = difference.runs_needed(claim.published)
    return "undecided" if needed is None else f"undecided: about {needed} seeds needed"


@dataclass(frozen=True)
class Comparison:
    """Arms that are trained alike and differ in one thing."""

    title: str
    kind: str
    """Name of the task."""
    prefix: str
    """Beginning of the names of the experiments; the name of the arm follows."""
    arms: Mapping[str, str]
    """Labels by name."""
    control: str
    """Arm that the others are compared with."""
    measures: Sequence[Measure]
    """Columns; the first one is compared and drawn."""
    published: float = 0.0
    """Published gain over the control, if there is one."""

    def runs(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Return the runs of each arm that has any."""
        return {arm: runs for arm in self.arms if (runs := runs_for(records, self.prefix + arm, "study"))}

    def differences(self, records: Sequence[Record]) -> Iterator[tuple[str, Difference]]:
        """Yield the difference of each other arm to the control."""
        groups = {arm: [self.measures[0].read(record) for record in runs] for arm, runs in self.runs(records).items()}
        for arm in groups:
            if arm != self.control and self.control in groups:
                yield arm, Difference.between(groups[arm], groups[self.control])

    def table(self, records: Sequence[Record]) -> Table | None:
        runs = self.runs(records)
        if not runs:
            return None
        digits = self.measures[0].digits
        against = {arm: difference.format(digits) for arm, difference in self.differences(records)}
        rows = [
            [
                *row_heading(self.arms[arm], group),
                *(Cell(format_mean([measure.read(record) for record in group], digits=measure.digits))
                  for measure in self.measures),
                Cell(against.get(arm, "")),
            ]
            for arm, group in runs.items()
        ]  # fmt: skip
        training = next(iter(runs.values()))[0].experiment.training
        return Table(
            self.title,
            ["", "parameters", "", *(measure.label for measure in self.measures), f"minus {self.arms[self.control]}"],
            rows,
            [
                f"Every arm: {group_digits(training.steps)} steps of {training.batch_size}, trained alike. The last "
                f"column is the difference in {self.measures[0].label}, with Welch's 95 % interval. ± is the standard "
                "deviation over seeds."
            ],
        )


COMPARISONS = [
    Comparison(
        "What the pool adds: our clustering network",
        "clustering",
        "clustering-pool-",
        {"pma": "PMA", "pb2": "PB, 2 steps", "pb3": "PB, 3 steps"},
        "pma",
        [LIKELIHOOD, SHIFTED],
    ),
    Comparison(
        "What the pool adds: our image classifier",
        "viewpoints",
        "viewpoints-azimuth-pool-",
        {"mean": "mean", "attention": "PMA", "picaso": "PB, 3 steps"},
        "attention",
        [
            NOVEL,
            accuracy("test toys, familiar", "accuracy", "familiar"),
            accuracy("training toys, novel", "training_toys", "novel"),
        ],
    ),
    Comparison(
        "What the pool adds: faces of CelebA",
        "odd-one-out",
        "odd-one-out-celeba-pool-",
        {
            "none": "no pool",
            "mean": "mean",
            "pma": "PMA",
            "pb": "PB",
            "gpb": "GPB",
            "mean-concatenated": "mean, no difference layer",
            "pma-concatenated": "PMA, no difference layer",
            "pb-concatenated": "PB, no difference layer",
            "gpb-concatenated": "GPB, no difference layer",
            "gpb-mapped": "GPB, the authors' two maps",
        },
        "pma",
        [AUROC, Measure("AUPR", lambda record: record.result["test"]["aupr"], digits=3)],
    ),
    *(
        Comparison(
            f"Table 3 with fair recipes: novel {split}s",
            "viewpoints",
            f"viewpoints-{split}-fair-",
            {
                "deepset-mean": "DeepSet, mean",
                "deepset-max": "DeepSet, maximum",
                "set-transformer": "Set Transformer",
                "pb1": "PB1",
                "pb2": "PB2",
                "pb3": "PB3",
            },
            "set-transformer",
            [
                NOVEL,
                accuracy("test toys, familiar", "accuracy", "familiar"),
                accuracy("training toys, novel", "training_toys", "novel"),
                accuracy("training images", "training_toys", "familiar"),
            ],
            published=gain(TABLE_3, "pb3", "set-transformer", column),
        )
        for column, split in enumerate(("azimuth", "elevation"))
    ),
    Comparison(
        "Translation: trained on centre crops, tested on moved ones",
        "viewpoints",
        "viewpoints-azimuth-centre-",
        {"deepset-max": "DeepSet, maximum", "set-transformer": "Set Transformer", "pb3": "PB3"},
        "set-transformer",
        [MOVED, NOVEL, accuracy("novel, moved", "accuracy", "novel_moved")],
    ),
]


def cascade_label(name: str) -> str:
    """Describe an arm of the sweep.

    Example:
        >>> cascade_label("steps3-every-mixing")
        '3 steps, every step trained, templates mix'
    """
    induced = "induced encoder, " * name.startswith("induced-")
    first, *options = name.removeprefix("induced-").split("-")
    count = int(first.removeprefix("steps"))
    words = {"every": "every step trained", "mixing": "templates mix"}
    return induced + ", ".join([f"{count} step{'s' * (count > 1)}", *(words[option] for option in options)])


CASCADE = Comparison(
    "Is a cascade a cheaper encoder? Clustering without an encoder",
    "clustering",
    "clustering-cascade-",
    {name: cascade_label(name) for name in CASCADES},
    "steps1",
    [BELOW_ORACLE],
)


def study_tables(records: Sequence[Record], kind: str) -> list[Table]:
    """Build the tables of the study that belong to a task."""
    comparisons = [comparison for comparison in (*COMPARISONS, CASCADE) if comparison.kind == kind]
    return [table for comparison in comparisons if (table := comparison.table(records)) is not None]


def read_step_costs(results: Path | None = None) -> dict[str, float]:
    """Return the milliseconds of a training step of each arm of the sweep, as ``benchmarks.cascade_cost`` measured."""
    results = committed_records().parent if results is None else results
    for path in sorted(results.glob("cascade_cost__*.json"), reverse=True):
        return {row["arm"]: row["milliseconds"] for row in read_json(path)["rows"]}
    return {}


FAMILIES = {
    "": "last step trained",
    "-mixing": "last step trained, templates mix",
    "-every": "every step trained",
    "-every-mixing": "every step trained, templates mix",
}


def draw_cascade_costs(records: Sequence[Record], costs: Mapping[str, float], folder: Path) -> Figures:
    """Draw the quality of the arms of the sweep against the time of their training, a line for each kind of cascade."""
    values = {
        arm: [BELOW_ORACLE.read(record) for record in runs]
        for arm, runs in CASCADE.runs(records).items()
        if arm in costs
    }
    if not values:
        return {}
    steps = CASCADE.runs(records)[next(iter(values))][0].experiment.training.steps
    figure = new_figure(8, 4.6)
    axis = figure.subplots()
    families = {
        label: [arm for arm in values if arm.removeprefix(arm.split("-")[0]) == suffix and arm.startswith("steps")]
        for suffix, label in FAMILIES.items()
    } | {"induced encoder before the cascade": [arm for arm in values if arm.startswith("induced-")]}
    for colour, (label, arms) in zip(COLOURS, families.items(), strict=False):
        minutes = [costs[arm] * steps / 60_000 for arm in arms]
        means = [statistics.fmean(values[arm]) for arm in arms]
        spreads = [statistics.stdev(values[arm]) if len(values[arm]) > 1 else 0.0 for arm in arms]
        axis.errorbar(minutes, means, yerr=spreads, marker="o", capsize=3, color=colour, label=label)
        for arm, across, mean in zip(arms, minutes, means, strict=True):
            count = arm.removeprefix("induced-").split("-")[0].removeprefix("steps")
            axis.annotate(count, (across, mean), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axis.set(xlabel="training, minutes of one thread", ylabel="nats below the oracle")
    axis.grid(color=GRID)
    axis.legend(frameon=False, fontsize=8)
    caption = (
        "Clustering without an encoder: quality against the cost of training, numbers are steps of the cascade. Lower "
        "and further left is better; bars are standard deviations over seeds."
    )
    return {caption: write_figure(figure, folder, "cascade_costs")}


def draw_gains(records: Sequence[Record], folder: Path) -> Figures:
    """Draw the gain of every arm over its control with its interval, a panel for each comparison that has runs."""
    shown = [(comparison, list(comparison.differences(records))) for comparison in COMPARISONS]
    shown = [(comparison, pairs) for comparison, pairs in shown if any(min(pair.runs) > 1 for _, pair in pairs)]
    if not shown:
        return {}
    heights = [1.2 + 0.42 * len(pairs) for _, pairs in shown]
    figure = new_figure(8, sum(heights))
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (comparison, pairs) in zip(axes, shown, strict=True):
        for place, (_, difference) in enumerate(reversed(pairs)):
            if min(difference.runs) > 1:
                axis.plot([difference.low, difference.high], [place, place], color=COLOURS[0], linewidth=2)
            axis.plot(difference.mean, place, "o", color=COLOURS[0])
        axis.set_yticks(range(len(pairs)), [comparison.arms[arm] for arm, _ in reversed(pairs)])
        axis.set_ylim(-0.6, len(pairs) - 0.4)
        axis.axvline(0, color=REFERENCE, linewidth=1)
        if comparison.published:
            axis.axvline(
                comparison.published * SHARE, color=COLOURS[1], linestyle="--", label="a third of the published"
            )
            axis.axvline(comparison.published, color=COLOURS[1], label="published gain of PB3")
            axis.legend(framealpha=0.9, edgecolor="none", fontsize=8)
        unit = f"{comparison.measures[0].label}, minus {comparison.arms[comparison.control]}"
        axis.set_title(comparison.title, fontsize=10, loc="left")
        axis.set_xlabel(unit, fontsize=9)
        axis.grid(color=GRID, axis="x")
        axis.set_axisbelow(True)
    caption = (
        "What each pool adds to the same network, trained alike: differences of means over seeds with Welch's 95 % "
        "intervals. Right of zero is better than the control."
    )
    return {caption: write_figure(figure, folder, "gains_of_pools")}
