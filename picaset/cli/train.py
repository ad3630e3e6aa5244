"""``picaset train``"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.experiments import Profile, experiment
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.launch import Launch, is_first
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import RunDirectory, run_name


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train one named experiment and leave a complete run directory.

    Ctrl-C lets the step finish, writes a checkpoint and says how to go on. A run that was killed goes on from its last
    checkpoint and ends with the same bits as one that never was.

    Examples:
        picaset train clustering-ae32-pb-sa --profile smoke
        picaset train clustering-ours --profile smoke --seed 3 --out runs --threads 1
        picaset train --resume runs/clustering-ours-smoke-seed3
        picaset train --config runs/clustering-ours-smoke-seed3/config.json --out elsewhere
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """What to train; `picaset experiments` lists the names."""
    profile: Profile = "quick"
    """smoke takes seconds, quick minutes on two cores, paper is the published setting."""
    seed: int = 0
    """Seeds weights, data and shuffling alike."""
    steps: int | None = None
    """Optimizer steps, where they shall differ from the profile's."""
    config: Path | None = None
    """A file like a run's config.json, instead of a name."""
    resume: Path | None = None
    """A run directory to go on with, instead of a name."""
    out: Path = Path("runs")
    """Parent of the run directory."""
    devices: int = 1
    """Processes of each machine that share each batch."""
    nodes: int = 1
    """Machines; with more than one, start this by torchrun on each of them, with --out in a folder that all see."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train, as Lightning Fabric names it."""
    threads: int | None = None
    """Threads of each process; the bits of a run depend on it."""
    data_root: Path | None = None
    """Folder of the real data sets, instead of PICASET_DATA; without either, generated data stands in."""
    tensorboard: bool = False
    """Write curves that TensorBoard shows, too."""
    json: bool = False
    """Print the result as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        if sum(choice is not None for choice in (self.name, self.config, self.resume)) != 1:
            raise ValueError("give one of: the name of an experiment, --config FILE, --resume DIRECTORY.")
        if self.name is None and (self.profile, self.seed, self.steps) != ("quick", 0, None):
            raise ValueError("--profile, --seed and --steps go with the name of an experiment; a config has its own.")
        options = Launch(
            devices=self.devices,
            nodes=self.nodes,
            accelerator=self.accelerator,
            threads=self.threads,
            silent=self.json,
            tensorboard=self.tensorboard,
        )
        if self.resume is not None:
            path = self.resume
            result = resume(path, **options)
        else:
            chosen = self.chosen()
            path = self.out / run_name(chosen.name, chosen.profile, chosen.training.seed)
            if is_first():
                RunDirectory.check_new(path)  # before data is made, which may take minutes
                if not self.json:
                    print(f"{chosen.name}: {chosen.task.describe_data()}")
            result = start(chosen, path, **options)
        if not is_first():  # one of the processes speaks
            return 0
        if self.json:
            print(json.dumps({"run": str(path), **result}))
        else:
            print(f"{path}: best score {result['best_score']:.4f} after {result['seconds']:.0f} s")
        return 0

    def chosen(self) -> Experiment:
        if self.config is not None:
            return Experiment.read(self.config)
        chosen = experiment(self.name or "", profile=self.profile, seed=self.seed)
        if self.steps is None:
            return chosen
        training = replace(chosen.training, steps=self.steps)
        return replace(chosen, profile=f"{chosen.profile}-{self.steps}-steps", training=training)
