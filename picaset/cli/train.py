"""``picaset train``"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.experiments import Profile, experiment
from picaset.lab.tasks.plugins import import_from
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.loop import Launch, StoppedError, is_first_process, resume, start
from picaset.lab.training.run_directory import RunDirectory, run_name
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a named experiment and write a run directory.

    Ctrl-C finishes the current step, writes a checkpoint and prints how to resume. A resumed run continues from its
    last checkpoint, and its result is bit-identical to that of an uninterrupted run.

    Examples:
        picaset train clustering-ae32-pb-sa --profile smoke
        picaset train clustering-ours --profile smoke --seed 3 --out runs --threads 1
        picaset train --resume runs/clustering-ours-smoke-seed3
        picaset train --config runs/clustering-ours-smoke-seed3/config.json --out elsewhere
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """Experiment to train; `picaset experiments` lists the names. MODULE:FUNCTION is one of your own, in a module of
    the working directory or of an installed package; it can be combined with --resume and --config."""
    profile: Profile = "quick"
    """smoke takes seconds, quick takes minutes on two cores, paper is the published setting."""
    seed: int = 0
    """Random seed of weights, data and shuffling."""
    steps: int | None = None
    """Number of optimizer steps, if other than the profile's."""
    config: Path | None = None
    """Train the experiment in this file, such as the config.json of a run, instead of a named one."""
    resume: Path | None = None
    """Resume the run in this directory."""
    out: Path = Path("runs")
    """Folder in which the run directory is created."""
    devices: int = 1
    """Number of processes per machine; they share each batch."""
    nodes: int = 1
    """Number of machines; for more than one, start this with torchrun on each, with --out in a shared folder."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to train on, as Lightning Fabric names it."""
    threads: int | None = None
    """Number of threads per process; results are bit-identical only for the same number."""
    data_root: Path | None = None
    """Folder of the real data sets; PICASET_DATA by default. Without either, generated data is used."""
    tensorboard: bool = False
    """Also write curves for TensorBoard."""
    json: bool = False
    """Print the result as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        choices = [self.name, self.config, self.resume]
        if self.name is not None and ":" in self.name and (self.config or self.resume):
            import_from(self.name)  # which defines the task of the run
            choices = [self.config, self.resume]
        if sum(choice is not None for choice in choices) != 1:
            raise ValueError("give one of: the name of an experiment, --config FILE, --resume DIRECTORY.")
        if (self.config or self.resume) and (self.profile, self.seed, self.steps) != ("quick", 0, None):
            raise ValueError(
                "--profile, --seed and --steps cannot be combined with --config or --resume, which have their own "
                "values."
            )
        options = Launch(
            devices=self.devices,
            nodes=self.nodes,
            accelerator=self.accelerator,
            threads=self.threads,
            silent=self.json,
            tensorboard=self.tensorboard,
        )
        try:
            path, result = self.train(options)
        except StoppedError as stopped:
            if self.name is None or ":" not in self.name:
                raise
            raise StoppedError(str(stopped).replace("picaset train", f"picaset train {self.name}")) from None
        if not is_first_process():  # only one of the processes prints
            return 0
        if self.json:
            say(json.dumps({"run": str(path), **result}))
        else:
            say(f"{path}: best score {result['best_score']:.4f} after {result['seconds']:.0f} s")
        return 0

    def train(self, options: Launch) -> tuple[Path, dict[str, Any]]:
        """Start or resume the run; return its directory and its result."""
        if self.resume is not None:
            return self.resume, resume(self.resume, **options)
        chosen = self.build_experiment()
        path = self.out / run_name(chosen.name, chosen.profile, chosen.training.seed)
        if is_first_process():
            RunDirectory.check_new(path)  # before generating data, which may take minutes
            if not self.json:
                say(f"{chosen.name}: {chosen.task.describe_data()}")
        return path, start(chosen, path, **options)

    def build_experiment(self) -> Experiment:
        if self.config is not None:
            return Experiment.read(self.config)
        chosen = experiment(self.name or "", profile=self.profile, seed=self.seed)
        if self.steps is None:
            return chosen
        training = replace(chosen.training, steps=self.steps)
        return replace(chosen, profile=f"{chosen.profile}-{self.steps}-steps", training=training)
