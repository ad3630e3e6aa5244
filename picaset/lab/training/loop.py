"""One loop for every task: train, score, keep, resume.

A step is a function of the seed, the number of the step and the tensors of the last checkpoint, and of nothing else:
data is drawn by step, the learning rate is computed from it. So a run that was stopped at any moment, by ``kill -9``
too, ends with the same bits as one that never was.

Everything that changes while training, and how it goes into a checkpoint and back.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel

from picaset.extras import require
from picaset.lab.data.folders import MissingDataError
from picaset.lab.training.environment import describe_environment
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.launch import Launch, check_launch, is_first, processes, stop_signals, wait_for
from picaset.lab.training.run_directory import Checkpoint, RunDirectory
from picaset.lab.training.schedules import learning_rate
from picaset.networks.pretrained import PretrainedNetwork
from picaset.prefetch import prefetch
from picaset.progress import Watcher, watch_steps


@dataclass
class State:
    """Everything that changes while training."""

    network: nn.Module
    wrapped: Any
    """The network as Fabric runs it, on its device and over its processes."""
    optimizer: Any
    average: AveragedModel | None
    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    curves: Any = None
    """Where TensorBoard reads them, if it shall."""

    @property
    def trained(self) -> nn.Module:
        """The network that counts: the running average, where there is one."""
        return self.network if self.average is None else self.average.module


def checkpoint_of(state: State) -> Checkpoint:
    """Everything that the next step depends on."""
    tensors = {f"network.{name}": tensor for name, tensor in state.network.state_dict().items()}
    if state.average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in state.average.state_dict().items()}
    for index, values in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
    tensors["random"] = torch.get_rng_state()
    return Checkpoint(state.step, tensors, {"step": state.step, "best": state.best, "seconds": state.seconds})


def restore_from(checkpoint: Checkpoint, state: State, optimizer: torch.optim.Optimizer) -> None:
    def part(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)
        }

    state.network.load_state_dict(part("network."))
    if state.average is not None:
        state.average.load_state_dict(part("average."))
    described = optimizer.state_dict()
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part("optimizer.").items():
        index, _, kind = name.partition(".")
        moments.setdefault(int(index), {})[kind] = tensor
    optimizer.load_state_dict({"state": moments, "param_groups": described["param_groups"]})
    torch.set_rng_state(checkpoint.tensors["random"])
    state.step = checkpoint.step
    state.best = checkpoint.state["best"]
    state.seconds = checkpoint.state["seconds"]


EXPECTED_ERRORS = ("ValueError: ", "OSError: ", f"{MissingDataError.__module__}.{MissingDataError.__qualname__}: ")
"""How the errors of another process begin that are meant for the user."""


class StoppedError(KeyboardInterrupt):
    """The run was asked to stop, and can be resumed."""


def start(experiment: Experiment, path: Path, **launch: Unpack[Launch]) -> dict[str, Any]:
    """Train an experiment in a new run directory, and return its result."""
    check_launch(experiment, launch)
    if is_first():
        RunDirectory.check_new(path)
        experiment.task.build_network()  # settings that do not fit leave no folder behind, nor does damaged data
        experiment.task.batch(0, seed=experiment.training.seed, num_examples=1, progress=0.0)
        environment = describe_environment(
            data=experiment.task.describe_data(), devices=processes(launch), threads=launch.get("threads")
        )
        RunDirectory.create(path, experiment, environment)
    else:  # another process of torchrun makes it
        wait_for(path / "config.json")
    return resume(path, **launch)


def resume(path: Path, **launch: Unpack[Launch]) -> dict[str, Any]:
    """Go on where a run was stopped, to its end; a finished run only gives its result."""
    directory = RunDirectory.open(path)
    if (result := directory.result) is not None:
        return result
    experiment = directory.experiment
    check_launch(experiment, launch)
    from lightning_fabric import Fabric

    # Under torchrun the processes are there already; otherwise they are started here.
    alone = processes(launch) == 1
    strategy = "auto" if alone else "ddp" if "TORCHELASTIC_RUN_ID" in os.environ else "ddp_spawn"
    fabric: Any = Fabric(
        accelerator=launch.get("accelerator", "auto"),
        devices=launch.get("devices", 1),
        num_nodes=launch.get("nodes", 1),
        strategy=strategy,
        precision=experiment.training.precision,
    )
    try:
        stopped = run_alone(fabric, path, launch) if alone else fabric.launch(run, path, launch)
    except KeyboardInterrupt:  # the processes finish their step by themselves; this one only waited for them
        raise StoppedError(f"stopped; resume with: picaset train --resume {path}") from None
    except ProcessRaisedException as error:
        said = str(error).strip().splitlines()[-1]
        if not said.startswith(EXPECTED_ERRORS):
            raise
        raise ValueError(said.partition(": ")[2]) from None
    result = directory.result
    if stopped is not None or result is None:
        raise StoppedError(stopped or f"stopped; resume with: picaset train --resume {path}")
    return result


def run_alone(fabric: Any, path: Path, launch: Launch) -> str | None:
    fabric.launch()
    return run(fabric, path, launch)


def run(fabric: Any, path: Path, launch: Launch) -> str | None:
    """The whole of a training, in each of its processes; what to say if it was asked to stop."""
    if threads := launch.get("threads"):
        torch.set_num_threads(threads)
    directory = RunDirectory.open(path)
    experiment = directory.experiment
    state = restored(fabric, directory, experiment)
    if launch.get("tensorboard") and fabric.is_global_zero:
        state.curves = curves_in(directory)
    began, spent = time.perf_counter(), state.seconds
    silent = launch.get("silent", False) or not fabric.is_global_zero
    with watch_steps(experiment.name, first=state.step, steps=experiment.training.steps, silent=silent) as watcher:
        for problem in state.problems:
            watcher.say(f"{problem}; going on from step {state.step}")
        with stop_signals() as stopping:
            for loss in steps_of(fabric, experiment, state):
                state.seconds = spent + time.perf_counter() - began
                watcher.advance(1, f"loss {loss:.4f}")
                stop = anywhere(fabric, stopping.now)
                keep_what_is_due(fabric, directory, experiment, state, loss, watcher, stopping=stop)
                if stop:
                    return f"stopped after step {state.step}; resume with: picaset train --resume {path}"
        finish(fabric, directory, experiment, state)
    return None


def restored(fabric: Any, directory: RunDirectory, experiment: Experiment) -> State:
    """A new network, or the one of the last checkpoint."""
    training = experiment.training
    torch.manual_seed(training.seed)  # pyright: ignore[reportUnknownMemberType]
    network = experiment.task.build_network()
    kind = torch.optim.AdamW if training.weight_decay else torch.optim.Adam
    # One kernel for all weights, where there is one.
    optimizer = kind(network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True)
    wrapped, wrapped_optimizer = fabric.setup(network, optimizer)
    average = None
    if training.average:
        average = AveragedModel(network, multi_avg_fn=running_average(training.average))
    state = State(network, wrapped, wrapped_optimizer, average)
    if fabric.is_global_zero:
        directory.remove_unfinished()
    checkpoint, problems = directory.last_checkpoint()
    if checkpoint is not None:
        try:
            restore_from(checkpoint, state, optimizer)
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{directory.path} has checkpoints of another network ({reason}); was its config.json changed?"
            ) from None
    state.problems = tuple(problems)
    if fabric.is_global_zero:
        directory.forget_metrics_after(state.step)
    return state


def running_average(keeps: float) -> Any:
    return cast(Any, swa_utils).get_ema_multi_avg_fn(keeps)


def steps_of(fabric: Any, experiment: Experiment, state: State) -> Iterator[float]:
    """Take the steps that are left, giving the loss of each."""
    task, training = experiment.task, experiment.training
    rank, world = int(fabric.global_rank), int(fabric.world_size)

    def make(step: int) -> tuple[int, tuple[Tensor, ...]]:
        whole = task.batch(step, seed=training.seed, num_examples=training.batch_size, progress=step / training.steps)
        return step, tuple(part[rank::world] for part in whole)

    first = state.step
    for step, batch in prefetch(lambda: map(make, range(first, training.steps))):
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate(step, training)
        state.wrapped.train()
        state.optimizer.zero_grad()
        loss = task.loss(state.wrapped, tuple(fabric.to_device(part) for part in batch))
        fabric.backward(loss)
        if training.clip:
            fabric.clip_gradients(state.wrapped, state.optimizer, max_norm=training.clip, error_if_nonfinite=False)
        state.optimizer.step()
        if state.average is not None:
            state.average.update_parameters(state.network)
        state.step = step + 1
        yield float(fabric.all_reduce(loss.detach()))


def keep_what_is_due(
    fabric: Any,
    directory: RunDirectory,
    experiment: Experiment,
    state: State,
    loss: float,
    watcher: Watcher,
    *,
    stopping: bool,
) -> None:
    """Scores and checkpoints, by the first process, while the others wait."""
    training = experiment.training
    at_end = state.step == training.steps
    if fabric.is_global_zero and (state.step % training.score_every == 0 or at_end):
        score(directory, experiment, state, loss, watcher)
    if fabric.is_global_zero and (state.step % training.checkpoint_every == 0 or at_end or stopping):
        directory.save_checkpoint(checkpoint_of(state))
    if fabric.world_size > 1 and (state.step % training.score_every == 0 or at_end):
        fabric.barrier()


def score(directory: RunDirectory, experiment: Experiment, state: State, loss: float, watcher: Watcher) -> None:
    network = state.trained.eval()
    found = experiment.task.score(network)
    directory.add_metrics({"step": state.step, "loss": loss, **found, "seconds": round(state.seconds, 2)})
    if state.curves is not None:
        for name, value in {"loss": loss, **found}.items():
            state.curves.add_scalar(name, value, state.step)
    watcher.say(f"step {state.step}: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()))
    if state.best is None or found["score"] > state.best:
        state.best = found["score"]
        if isinstance(network, PretrainedNetwork):
            network.save_pretrained(directory.network("best"))


def curves_in(directory: RunDirectory) -> Any:
    require("tensorboard", extra="all", purpose="writing for TensorBoard")
    from torch.utils import tensorboard

    return cast(Any, tensorboard).SummaryWriter(str(directory.path / "tensorboard"))


def finish(fabric: Any, directory: RunDirectory, experiment: Experiment, state: State) -> None:
    """Evaluate what was learned; the result is the last thing that is written."""
    if state.curves is not None:
        state.curves.close()
    if fabric.is_global_zero:
        network = state.trained.eval()
        if isinstance(network, PretrainedNetwork):
            network.save_pretrained(directory.network("final"))
        directory.write_json(
            "result.json",
            {
                "name": experiment.name,
                "profile": experiment.profile,
                "seed": experiment.training.seed,
                "steps": state.step,
                "parameters": sum(parameter.numel() for parameter in network.parameters()),
                "seconds": round(state.seconds, 1),
                "best_score": state.best,
                **experiment.task.evaluate(network),
            },
        )
    if fabric.world_size > 1:
        fabric.barrier()


def anywhere(fabric: Any, stopping: bool) -> bool:
    """Whether any process was asked to stop: all stop after the same step, or the others would wait for ever."""
    if fabric.world_size == 1:
        return stopping
    return bool(fabric.all_reduce(torch.tensor(float(stopping), device=fabric.device), reduce_op="sum") > 0)
