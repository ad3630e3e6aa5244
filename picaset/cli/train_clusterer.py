"""``picaset train-clusterer``"""

from dataclasses import dataclass
from pathlib import Path

from picaset.estimators.initialization import register
from picaset.lab.experiments import Profile
from picaset.lab.experiments.clustering import clusterer
from picaset.lab.training.launch import Launch
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import run_name


@dataclass(frozen=True, kw_only=True)
class TrainClusterer:
    """Train a network for AmortizedMixture on simulated mixtures, and put it where AmortizedMixture finds it.

    Needed for points of other than two coordinates, or for more than eight components. Stopped by Ctrl-C, the same
    command goes on where it was.

    Examples:
        picaset train-clusterer --coordinates 3 --components 6 --profile smoke --out runs
    """

    coordinates: int
    """Coordinates of a point."""
    components: int
    """The most components of a mixture; the fewest are 2."""
    profile: Profile = "quick"
    """smoke takes seconds and gives a poor network, quick a quarter of an hour, paper hours."""
    seed: int = 0
    """Seeds weights and data alike."""
    out: Path = Path("runs")
    """Parent of the run directory."""
    threads: int | None = None
    """Threads to train with."""

    def run(self) -> int:
        experiment = clusterer(self.profile, self.seed, dim_in=self.coordinates, max_components=self.components)
        path = self.out / run_name(experiment.name, self.profile, self.seed)
        launch = Launch(threads=self.threads)
        if (path / "config.json").is_file():
            resume(path, **launch)
        else:
            start(experiment, path, **launch)
        print(f"AmortizedMixture now finds it: {register(path / 'checkpoints' / 'best')}")
        return 0
