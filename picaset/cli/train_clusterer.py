"""``picaset train-clusterer``"""

from dataclasses import dataclass
from pathlib import Path

from picaset.estimators.mixture_search import register_proposer
from picaset.lab.experiments import Profile
from picaset.lab.experiments.clustering import clusterer
from picaset.lab.training.loop import Launch, resume, start
from picaset.lab.training.run_directory import run_name
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class TrainClusterer:
    """Train a network for AmortizedMixture on simulated mixtures, and register it.

    Only for AmortizedMixture(init="network"), with other than two coordinates or more than eight components. After
    Ctrl-C, the same command resumes the training.

    Examples:
        picaset train-clusterer --coordinates 3 --components 6 --profile smoke --out runs
    """

    coordinates: int
    """Number of coordinates of a point."""
    components: int
    """Largest number of components of a mixture; the smallest is 2."""
    profile: Profile = "quick"
    """smoke takes seconds and gives a poor network, quick takes a quarter of an hour, paper takes hours."""
    seed: int = 0
    """Random seed of weights and data."""
    out: Path = Path("runs")
    """Folder in which the run directory is created."""
    threads: int | None = None
    """Number of threads to train with."""

    def run(self) -> int:
        experiment = clusterer(self.profile, self.seed, dim_in=self.coordinates, max_components=self.components)
        path = self.out / run_name(experiment.name, self.profile, self.seed)
        launch = Launch(threads=self.threads)
        if (path / "config.json").is_file():
            resume(path, **launch)
        else:
            start(experiment, path, **launch)
        say(f"Registered for AmortizedMixture: {register_proposer(path / 'checkpoints' / 'best')}")
        return 0
