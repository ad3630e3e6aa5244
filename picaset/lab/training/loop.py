"""The training loop of all tasks: train, evaluate, save checkpoints, resume.

A step depends on the seed, the number of the step and the tensors of the last checkpoint, and on nothing else: data and
learning rate are functions of the step. A run that is interrupted at any moment, even by ``kill -9``, and resumed is
bit-identical to an uninterrupted run. :class:`State` holds everything that changes during training; it is saved by
:func:`to_checkpoint` and restored by :func:`load_checkpoint`.

A run may use several processes on several machines (:class:`Launch`). The first process writes; SIGINT and SIGTERM stop
a run after the current step.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel

from picaset.extras import require
from picaset.lab.data.folders import MissingDataError
from picaset.lab.training.experiment import Experiment, Training
from picaset.lab.training.run_directory import Checkpoint, RunDirectory, describe_environment
from picaset.large.sources import prefetch
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch
from picaset.terminal import Watcher, watch_steps

RISE = 0.3
"""Share of the steps of a one-cycle schedule in which the rate rises."""
START = 0.04
"""Initial rate of a one-cycle schedule, relative to its peak."""
HALF_LIFE = 50_000
"""Number of steps in which the rate of a halving schedule falls to one half."""


def learning_rate(step: int, training: Training) -> float:
    """Return the learning rate of a step; steps are counted from 0.

    Example:
        >>> training = Training(steps=100, learning_rate=1.0, schedule="cosine", warmup_steps=10)
        >>> [round(learning_rate(step, training), 2) for step in (0, 9, 55, 99)]
        [0.1, 1.0, 0.5, 0.0]
    """
    return training.learning_rate * relative_rate(step, training)


def relative_rate(step: int, training: Training) -> float:
    """Return the learning rate of a step, relative to its peak."""
    if training.schedule == "one-cycle":
        rise = max(round(RISE * training.steps), 1)
        if step < rise:
            return START + (1 - START) * (1 - cosine(step / rise))
        return cosine((step - rise) / max(training.steps - rise, 1))
    if step < training.warmup_steps:
        return (step + 1) / training.warmup_steps
    if training.schedule == "cosine":
        return cosine((step - training.warmup_steps) / max(training.steps - training.warmup_steps, 1))
    if training.schedule == "tenth-half-way":
        return 0.1 if step >= training.steps / 2 else 1.0
    if training.schedule == "halving":
        return 0.5 ** (step / HALF_LIFE)
    return 1.0


def cosine(progress: float) -> float:
    """Return half a cosine wave that falls from 1 to 0 as ``progress`` goes from 0 to 1."""
    return 0.5 * (1 + math.cos(math.pi * progress))


class Launch(TypedDict, total=False):
    """Launch options of a run."""

    devices: int
    """Number of processes on each machine."""
    nodes: int
    """Number of machines; with more than one, torchrun starts the processes."""
    accelerator: str
    """Accelerator of Lightning Fabric."""
    threads: int | None
    """Number of threads of each process."""
    silent: bool
    """Whether to print no progress."""
    tensorboard: bool
    """Whether to write losses and scores for TensorBoard."""


def check_launch(experiment: Experiment, launch: Launch) -> None:
    """Check launch options before anything is written."""
    require("lightning_fabric", extra="experiments", purpose="training")
    if launch.get("tensorboard"):
        require("tensorboard", extra="all", purpose="writing for TensorBoard")
    batch_size, devices, nodes = experiment.training.batch_size, launch.get("devices", 1), launch.get("nodes", 1)
    for name, number in (("devices", devices), ("nodes", nodes)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1; got {number}.")
    if batch_size % (devices * nodes):
        on = f" on each of {nodes} machines" if nodes > 1 else ""
        raise ValueError(f"batch_size must be a multiple of the number of devices; got {batch_size} and {devices}{on}.")
    if nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise ValueError(
            f"{nodes} machines need torchrun on each of them: torchrun --nnodes {nodes} --nproc-per-node {devices} "
            "--rdzv-backend c10d --rdzv-endpoint HOST:29500 -m picaset train ..."
        )


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun started, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0


def num_processes(launch: Launch) -> int:
    """Return the number of processes that share a batch."""
    return launch.get("devices", 1) * launch.get("nodes", 1)


def wait_for(path: Path, *, seconds: float = 3600.0) -> None:
    """Wait until the first process has created a file."""
    deadline = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ValueError(
                f"{path} was not created by the first process within {seconds:g} s; see the output of that process."
            )
        time.sleep(0.1)


@contextmanager
def stop_signals() -> Generator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one has its usual effect."""
    stop_request = threading.Event()
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, frame: object) -> None:
        stop_request.set()
        restore()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
    except ValueError:  # only the main thread can install signal handlers
        pass
    try:
        yield stop_request
    finally:
        restore()


USER_ERRORS = ("ValueError: ", "OSError: ", f"{MissingDataError.__module__}.{MissingDataError.__qualname__}: ")
"""Prefixes, in the traceback of a child process, of errors whose message is meant for the user."""


class StoppedError(KeyboardInterrupt):
    """The run was stopped by a signal and can be resumed."""


@dataclass
class State:
    """Everything that changes during training."""

    network: nn.Module
    wrapped: Any
    """The network as wrapped by Fabric, on its device and distributed over processes."""
    optimizer: Any
    average: AveragedModel | None
    step: int = 0
    best: float | None = None
    """Best score so far."""
    seconds: float = 0.0
    """Training time so far."""
    problems: tuple[str, ...] = ()
    """Descriptions of damaged checkpoints that were skipped."""
    curves: Any = None
    """Writer of TensorBoard files, if requested."""

    @property
    def trained(self) -> nn.Module:
        """The network to evaluate: the running average of the weights, if there is one."""
        return self.network if self.average is None else self.average.module


def start(experiment: Experiment, path: Path, **launch: Unpack[Launch]) -> dict[str, Any]:
    """Train an experiment in a new run directory and return its result."""
    check_launch(experiment, launch)
    if is_first_process():
        RunDirectory.check_new(path)
        # Invalid settings and damaged data raise their error before the folder is created.
        experiment.task.build_network()
        experiment.task.batch(0, seed=experiment.training.seed, num_examples=1, progress=0.0)
        environment = describe_environment(
            data=experiment.task.describe_data(), devices=num_processes(launch), threads=launch.get("threads")
        )
        RunDirectory.create(path, experiment, environment)
    else:
        wait_for(path / "config.json")
    return resume(path, **launch)


def resume(path: Path, **launch: Unpack[Launch]) -> dict[str, Any]:
    """Continue a run to its end and return its result; a finished run is not trained further."""
    directory = RunDirectory.open(path)
    if (result := directory.result) is not None:
        return result
    experiment = directory.experiment
    check_launch(experiment, launch)
    from lightning_fabric import Fabric

    # torchrun has started the processes already; ddp_spawn starts them here.
    single = num_processes(launch) == 1
    strategy = "auto" if single else "ddp" if "TORCHELASTIC_RUN_ID" in os.environ else "ddp_spawn"
    fabric: Any = Fabric(
        accelerator=launch.get("accelerator", "auto"),
        devices=launch.get("devices", 1),
        num_nodes=launch.get("nodes", 1),
        strategy=strategy,
        precision=experiment.training.precision,
    )
    try:
        if single:
            fabric.launch()
            stopped = run(fabric, path, launch)
        else:
            stopped = fabric.launch(run, path, launch)
    except KeyboardInterrupt:  # this process only waits; the others finish their step
        raise StoppedError(f"stopped; resume with: picaset train --resume {path}") from None
    except ProcessRaisedException as error:
        last_line = str(error).strip().splitlines()[-1]
        if not last_line.startswith(USER_ERRORS):
            raise
        raise ValueError(last_line.partition(": ")[2]) from None
    result = directory.result
    if stopped is not None or result is None:
        raise StoppedError(stopped or f"stopped; resume with: picaset train --resume {path}")
    return result


def run(fabric: Any, path: Path, launch: Launch) -> str | None:
    """Train in one of the processes; return None, or a message if the run was stopped by a signal."""
    if threads := launch.get("threads"):
        torch.set_num_threads(threads)
    directory = RunDirectory.open(path)
    experiment = directory.experiment
    state = initial_state(fabric, directory, experiment)
    if launch.get("tensorboard") and fabric.is_global_zero:
        from torch.utils import tensorboard

        state.curves = cast(Any, tensorboard).SummaryWriter(str(directory.path / "tensorboard"))
    started, seconds_before = time.perf_counter(), state.seconds
    silent = launch.get("silent", False) or not fabric.is_global_zero
    with watch_steps(experiment.name, first=state.step, steps=experiment.training.steps, silent=silent) as watcher:
        for problem in state.problems:
            watcher.say(f"{problem}; resuming from step {state.step}")
        with stop_signals() as stop_request:
            for loss in training_steps(fabric, experiment, state):
                state.seconds = seconds_before + time.perf_counter() - started
                watcher.advance(1, f"loss {loss:.4f}")
                stop = any_process(fabric, stop_request.is_set())
                evaluate_and_save(fabric, directory, experiment, state, loss, watcher, stopping=stop)
                if stop:
                    return f"stopped after step {state.step}; resume with: picaset train --resume {path}"
        finish(fabric, directory, experiment, state)
    return None


def initial_state(fabric: Any, directory: RunDirectory, experiment: Experiment) -> State:
    """Create a new network, and restore it from the last checkpoint if there is one."""
    training = experiment.training
    torch.manual_seed(training.seed)  # pyright: ignore[reportUnknownMemberType]
    network = experiment.task.build_network()
    optimizer_class = torch.optim.AdamW if training.weight_decay else torch.optim.Adam
    optimizer = optimizer_class(
        network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
    )
    wrapped, wrapped_optimizer = fabric.setup(network, optimizer)
    average = None
    if training.average:
        average = AveragedModel(network, multi_avg_fn=cast(Any, swa_utils).get_ema_multi_avg_fn(training.average))
    state = State(network, wrapped, wrapped_optimizer, average)
    if fabric.is_global_zero:
        directory.remove_temporary()
    checkpoint, problems = directory.last_checkpoint()
    if checkpoint is not None:
        try:
            load_checkpoint(checkpoint, state, optimizer, training.steps)
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{directory.path} has checkpoints of another network ({reason}); was its config.json changed?"
            ) from None
    state.problems = tuple(problems)
    if fabric.is_global_zero:
        directory.remove_metrics_after(state.step)
    return state


def to_checkpoint(state: State) -> Checkpoint:
    """Return everything on which the next step depends."""
    tensors = {f"network.{name}": tensor for name, tensor in state.network.state_dict().items()}
    if state.average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in state.average.state_dict().items()}
    for index, values in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
    tensors["random"] = torch.get_rng_state()
    return Checkpoint(state.step, tensors, {"step": state.step, "best": state.best, "seconds": state.seconds})


def load_checkpoint(checkpoint: Checkpoint, state: State, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    """Restore the state of training; ``optimizer`` is the one that Fabric has wrapped."""

    def tensors_of(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)
        }

    state.network.load_state_dict(tensors_of("network."))
    if state.average is not None:
        state.average.load_state_dict(tensors_of("average."))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors_of("optimizer.").items():
        index, _, kind = name.partition(".")
        moments.setdefault(int(index), {})[kind] = tensor
    if checkpoint.step > num_steps:
        raise ValueError(f"step {checkpoint.step} of {num_steps}")
    for index, values in moments.items():
        shape = list(state.network.parameters())[index].shape
        if {kind: value.shape for kind, value in values.items()} != {"step": (), "exp_avg": shape, "exp_avg_sq": shape}:
            raise ValueError(f"moments of parameter {index}")
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(checkpoint.tensors["random"])
    state.step = checkpoint.step
    state.best = checkpoint.state["best"]
    state.seconds = checkpoint.state["seconds"]


def training_steps(fabric: Any, experiment: Experiment, state: State) -> Iterator[float]:
    """Perform the remaining steps and yield the loss of each."""
    task, training = experiment.task, experiment.training
    rank, world_size = int(fabric.global_rank), int(fabric.world_size)

    def local_batch(step: int) -> tuple[int, tuple[Any, ...]]:
        batch = task.batch(step, seed=training.seed, num_examples=training.batch_size, progress=step / training.steps)
        return step, tuple(every_nth(part, rank, world_size) for part in batch)

    first = state.step
    for step, batch in prefetch(lambda: map(local_batch, range(first, training.steps))):
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


def every_nth(examples: Any, first: int, n: int) -> Any:
    """Return the examples ``first``, ``first + n`` and so on, of a tensor or a SetBatch."""
    if n == 1:
        return examples
    if not isinstance(examples, SetBatch):
        return examples[first::n]
    chosen = examples.owners % n == first
    weights = None if examples.weights is None else examples.weights[chosen]
    offsets = torch.cat([examples.offsets[:1], examples.sizes[first::n].cumsum(0)])
    return SetBatch(examples.elements[chosen], offsets, weights)


def evaluate_and_save(
    fabric: Any,
    directory: RunDirectory,
    experiment: Experiment,
    state: State,
    loss: float,
    watcher: Watcher,
    *,
    stopping: bool,
) -> None:
    """Evaluate the network and save a checkpoint if they are due; the first process does it, the others wait."""
    training = experiment.training
    last = state.step == training.steps
    score_due = last or state.step % training.score_every == 0
    checkpoint_due = last or stopping or state.step % training.checkpoint_every == 0
    if fabric.is_global_zero and score_due:
        score(directory, experiment, state, loss, watcher)
    if fabric.is_global_zero and checkpoint_due:
        directory.save_checkpoint(to_checkpoint(state))
    if fabric.world_size > 1 and score_due:
        fabric.barrier()


def score(directory: RunDirectory, experiment: Experiment, state: State, loss: float, watcher: Watcher) -> None:
    """Evaluate the network, record its metrics, and save it if it is the best so far."""
    network = state.trained.eval()
    metrics = experiment.task.score(network)
    directory.add_metrics({"step": state.step, "loss": loss, **metrics, "seconds": round(state.seconds, 2)})
    if state.curves is not None:
        for name, value in {"loss": loss, **metrics}.items():
            state.curves.add_scalar(name, value, state.step)
    watcher.say(f"step {state.step}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    if state.best is None or metrics["score"] > state.best:
        state.best = metrics["score"]
        if isinstance(network, PretrainedNetwork):
            network.save_pretrained(directory.network("best"))


def finish(fabric: Any, directory: RunDirectory, experiment: Experiment, state: State) -> None:
    """Evaluate the final network; ``result.json`` is written last and marks the run as finished."""
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


def any_process(fabric: Any, stopping: bool) -> bool:
    """Return whether any process was requested to stop: all must stop after the same step, or the others would hang."""
    if fabric.world_size == 1:
        return stopping
    return bool(fabric.all_reduce(torch.tensor(float(stopping), device=fabric.device), reduce_op="sum") > 0)
