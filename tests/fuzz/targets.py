"""Everything that reads files of others, with valid files to start from."""

import contextlib
import importlib
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from picaset.estimators import set_ensemble
from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.set_estimators import SetClassifier, SetRegressor
from picaset.lab.data.celeba import read_celeba
from picaset.lab.data.clevr import read_clevr
from picaset.lab.reports.reproduction import all_tables, choose_records, tables_to_markdown
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.run_directory import RunDirectory
from picaset.pretrained import CLASSES, PretrainedNetwork, read_description
from picaset.studio.rooms.runs import reading
from picaset.terminal import Terminal, say
from tests.fuzz.mutations import Files, write_files
from tests.fuzz.runner import RefusedError, Target, choose_way, command
from tests.fuzz.tables import TABLES

FIXTURES = Path(__file__).parent.parent / "fixtures/version_0_1"
ESTIMATORS = {
    "set_classifier": SetClassifier,
    "set_regressor": SetRegressor,
    "set_anomaly_detector": SetAnomalyDetector,
}
KINDS = [*ESTIMATORS.values(), AmortizedMixture]


def files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@cache
def saved_estimators() -> list[Files]:
    """Estimators of version 0.1, and small ones of this version: ensembles, statistics, mixtures."""
    folder, generator = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    sets = [generator.normal(size=(size, 3)) + shift for size, shift in zip(range(4, 16), [0, 1] * 6, strict=True)]
    options: dict[str, Any] = dict(dim=4, num_heads=1, max_iter=2, random_state=0)
    set_ensemble.NUM_TREES, number = 2, set_ensemble.NUM_TREES
    try:
        SetClassifier(**options).fit(sets, ["left", "right"] * 6).save(folder / "classifier")
        SetRegressor(**options).fit(sets, [float(len(elements)) for elements in sets]).save(folder / "regressor")
    finally:
        set_ensemble.NUM_TREES = number
    detector = SetAnomalyDetector(method="density", random_state=0).fit(sets)
    detector._weights |= dict.fromkeys(["mahalanobis", "lof"], detector._weights["density"])
    detector.save(folder / "detector")
    AmortizedMixture(2, random_state=0).fit(np.concatenate(sets)).save(folder / "mixture")
    AmortizedMixture(2, covariance_type="full", noise=True, random_state=0).fit(np.concatenate(sets)).save(
        folder / "noise"
    )
    old = [FIXTURES / "estimators" / name for name in ESTIMATORS]
    return [files_in(path) for path in (*old, *sorted(folder.iterdir()))]


def use_estimator(folder: Path, random: Random) -> None:
    """Load a saved estimator, by the class that it names, and predict."""
    described = (folder / "estimator.json").read_bytes() if (folder / "estimator.json").is_file() else b""
    kinds = [kind for kind in KINDS if kind.__name__.encode() in described]
    estimator = random.choice(kinds or KINDS).load(folder)
    generator = np.random.default_rng(0)
    sets = [generator.normal(size=(size, 3)) for size in (4, 1, 7)]
    if isinstance(estimator, AmortizedMixture):
        results = [estimator.predict_proba(sets[2]), estimator.score_samples(sets[2])]
    elif isinstance(estimator, SetAnomalyDetector):
        results = [np.concatenate(estimator.score_elements(sets)), np.concatenate(estimator.predict(sets))]
    elif isinstance(estimator, SetClassifier):
        results = [estimator.predict_proba(sets)]
        estimator.predict(sets)
    else:
        results = [estimator.predict(sets)]
    assert all(np.isfinite(np.asarray(result, dtype=float)).all() for result in results), "predicted NaN or infinity"
    estimator.save(folder / "again")


def saved_networks() -> list[Files]:
    names = sorted(path for path in (FIXTURES / "networks").iterdir())
    return [{name: content for name, content in files_in(path).items() if "expected" not in name} for path in names]


def use_network(folder: Path, random: Random) -> None:
    """Load a network by the class that its description names, and save it again."""
    kind = CLASSES.get(read_description(folder / "config.json")["network"])
    if kind is None or not issubclass(kind, PretrainedNetwork):
        raise RefusedError("no such network")
    kind.from_pretrained(folder).save_pretrained(folder / "again")


@cache
def small_run() -> Files:
    """A finished run whose evaluation takes a tenth of a second."""
    files = files_in(FIXTURES / "runs/clustering-ours")
    config = Experiment.read(FIXTURES / "runs/clustering-ours/config.json").to_json()
    config["task"] |= {"num_benchmark_sets": 2, "num_scored_sets": 2, "sizes": [20, 40]}
    return {"runs/one/" + name: content for name, content in files.items()} | {
        "runs/one/config.json": json.dumps(config).encode()
    }


def run_directories() -> list[Files]:
    importlib.import_module("matplotlib.pyplot")  # makes its folders, before writing is watched
    whole = small_run()
    half = {name: content for name, content in whole.items() if name != "runs/one/result.json"}
    others = [
        {f"runs/one/{name}": content for name, content in files_in(path).items()}
        for path in sorted((FIXTURES / "runs").iterdir())
    ]
    return [whole] * 4 + [half] * 4 + others  # the small one can be evaluated and resumed within the time limit


def draw_runs() -> None:
    """Draw a report of a valid run, and look at each kind: the first time reads fonts and imports, for seconds."""
    with tempfile.TemporaryDirectory() as place:
        write_files(Path(place), small_run(), Random(0), Path(place))
        command("report", "--runs", Path(place) / "runs", "--out", Path(place) / "report")
        for run in sorted((FIXTURES / "runs").iterdir()):
            with contextlib.suppress(RefusedError):  # without pictures, or without the data
                command("look", run, "--out", Path(place) / "look")


def use_run(folder: Path, random: Random) -> None:
    """Evaluate, report, resume or look at a run, or show it in the studio."""
    run = folder / "runs/one"
    (way,) = random.choices(list(SHARES), list(SHARES.values()))
    choose_way(way)
    if way == "train --resume" and (run / "result.json").is_file():
        (run / "result.json").unlink()
    if way == "train --resume" and is_small(run):
        command("train", "--resume", run, "--accelerator", "cpu")
    elif way == "evaluate" and is_small(run):
        command("evaluate", run)
    elif way == "report":
        command("report", "--runs", folder / "runs", "--out", folder / "report")
    elif way == "look":
        command("look", run, "--out", folder / "look")
    elif way == "studio":
        for summary in reading.list_runs(folder / "runs").runs:
            summary.model_dump_json()
        if (run / "config.json").is_file():
            detail, problem = reading.read_or_explain(lambda: reading.read_detail(run), run)
            assert (detail is None) != (problem is None)
            if problem is not None:
                raise RefusedError(problem)
        reading.build_tables([folder / "runs"]).model_dump_json()
    else:
        choose_way("report, tables only")
        skipped = list[str]()
        try:
            records = choose_records(folder / "runs", on_skip=skipped.append)
        finally:
            assert all(line.startswith("skipped ") for line in skipped)
            for line in skipped:
                say(line)
        tables = all_tables(records, [folder / "runs"])
        for table in tables:
            table.print(Terminal(file=io.StringIO()))
        assert "<script" not in tables_to_markdown(tables)


SHARES = {
    "evaluate": 5,
    "train --resume": 5,
    "report": 1,  # a valid run takes seconds to draw
    "look": 1,
    "report, tables only": 6,
    "studio": 6,
}


def is_small(run: Path) -> bool:
    """Whether a run asks for little work: more is not a hang, and takes longer than the time limit."""
    experiment = RunDirectory.open(run).experiment
    task, training = experiment.task, experiment.training
    numbers = [getattr(task, name, 0) for name in ("num_benchmark_sets", "num_scored_sets")]
    sizes = getattr(task, "sizes", (10**9,))
    steps = 1 if task.network is None else task.network.get("num_steps") or 1
    return experiment.kind == "clustering" and max(*numbers, *sizes, steps, training.steps) <= 100


def configs() -> list[Files]:
    names = ["clustering-ours", "viewpoints-azimuth-pb3", "odd-one-out-sa-gpb", "scenes-dspn30", "clusterer-2d-8"]
    return [{"config.json": (FIXTURES / "runs" / name / "config.json").read_bytes()} for name in names] + [
        {"config.json": json.dumps(Experiment.read(FIXTURES / "runs" / name / "config.json").to_json()).encode()}
        for name in names
    ]


def use_config(folder: Path, random: Random) -> None:
    """Read the experiment of a file, build its network, and name the folder of its run."""
    experiment = Experiment.read(folder / "config.json")
    torch.manual_seed(0)
    experiment.task.build_network()
    say(f"{experiment.name}: {experiment.kind} {experiment.profile}")
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json())), where="again") == experiment


@cache
def data_sets() -> list[Files]:
    from tests.celeba_files import write_celeba
    from tests.clevr_files import write_clevr

    folder = Path(tempfile.mkdtemp())
    write_celeba(folder / "celeba", 3)
    write_clevr(folder / "clevr", 2, 2)
    return [files_in(folder)]


def use_data_sets(folder: Path, random: Random) -> None:
    """Decode the images of CelebA's or CLEVR's layout, with their lists."""
    if random.random() < 0.5:
        faces = read_celeba.__wrapped__(folder / "celeba", folder / "cache")
        assert faces.images.shape == (len(faces.attributes), 64, 64, 3)
    else:
        scenes = read_clevr.__wrapped__(
            folder / "clevr", folder / "cache", part=random.choice(["train", "val"]), size=32
        )
        assert np.isfinite(scenes.coordinates).all()


TARGETS = [
    *TABLES,
    Target("saved estimators, load and use", saved_estimators, use_estimator),
    Target("saved networks", saved_networks, use_network),
    Target("run directories: evaluate, look, report, resume, studio", run_directories, use_run, draw_runs, 20.0),
    Target("configs of experiments", configs, use_config),
    Target("CelebA, CLEVR files", data_sets, use_data_sets),
]
