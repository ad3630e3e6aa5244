"""What a trained network looks at: from a run to figures, drawn as its task draws them.

A task that can be looked at has a function in ``LOOKS``; everything else about a run is the same for all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import nn

from picaset.lab.reports.scene_figures import look_at_scenes
from picaset.lab.reports.viewpoint_look import look_at_views
from picaset.lab.training.run_directory import RunDirectory

Draw = Callable[..., dict[str, list[Path]]]
"""From a task, its network, a folder, ``category`` and ``seed`` to figures by their captions."""

LOOKS: dict[str, Draw] = {"viewpoints": look_at_views, "scenes": look_at_scenes}
"""By the task of a run."""


def look(
    run: Path, out: Path, *, which: Literal["final", "best"] = "final", category: str | None = None, seed: int = 0
) -> dict[str, list[Path]]:
    """Draw what the network of a run looks at, as SVG and PNG; figures by their captions.

    Args:
        run: The run directory, with its network.
        out: Folder of the figures.
        which: The network at the end, or the best one on the way.
        category: What is looked at; the seed chooses if it is None.
        seed: Chooses the example.
    """
    directory = RunDirectory.open(run)
    kind = directory.experiment.kind
    if kind not in LOOKS:
        raise ValueError(
            f"{run} is a run of the task {kind!r}, which has no pictures; looked at can be: {', '.join(LOOKS)}."
        )
    if not directory.network(which).is_dir():
        raise ValueError(
            f"{run} has no network ({directory.network(which)} is not there): a record keeps numbers alone. Train it "
            f"with: picaset train {directory.experiment.name} --profile {directory.experiment.profile}"
        )
    task: Any = directory.experiment.task
    network: nn.Module = task.read_network(directory.network(which))
    return LOOKS[kind](task, network, out, category=category, seed=seed)
