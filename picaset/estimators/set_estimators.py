"""Classification and regression of sets of vectors, with the scikit-learn API."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from torch.nn.functional import cross_entropy

from picaset.checks import check_choice, check_device, check_positive
from picaset.estimators.base import FILE, SetNetworkEstimator, check_finite, mean_and_scale
from picaset.estimators.saved_members import decode, encode
from picaset.estimators.set_ensemble import FEATURES, NETWORK, Folds, Kind, SetEnsemble, log_softmax
from picaset.estimators.set_features import check_features, feature_scales
from picaset.estimators.set_inputs import SetFile, SetList, read_set_list, sample_elements
from picaset.estimators.set_training import (
    MAX_TRAINING_SIZE,
    WARMUP_STEPS,
    Loss,
    TrainedNetworks,
    draw_validation_indices,
    inference_batches,
    predict_sets,
    train_networks,
)
from picaset.estimators.validation import (
    ClassifierMixin,
    GroupKFold,
    KFold,
    RegressorMixin,
    StratifiedGroupKFold,
    StratifiedKFold,
    available_device,
    check_above_zero,
    check_classification_targets,
    check_is_fitted,
    check_random_state,
    clone,
    compute_class_weight,
    draw_seed,
    seeded_torch,
)
from picaset.files import atomic_write, parse_json
from picaset.large.sources import Chunk, FromFunction
from picaset.large.stream import stream
from picaset.networks.set_networks import Encoder
from picaset.networks.set_predictor import ENCODERS, POOLS, PredictorPool, SetPredictor
from picaset.pretrained import PretrainedNetwork
from picaset.terminal import Watcher, watch_steps

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Method = Literal["auto", "network"]
MEMBERS_FILE = "members.safetensors"
MAX_NETWORKS = 1000
"""Largest number of networks of an estimator that is loaded."""
INNER_FOLDS = 5
"""Number of folds by which the members of an ensemble are combined."""
FILE_SAMPLE = 16 * MAX_TRAINING_SIZE
"""Number of elements of a set in a file from which the networks learn."""
LEAVE_ONE_OUT_SIZE = 64
"""Largest set for which the importance of an element is the change of the prediction without it."""
NETWORK_SECONDS = 4.0
"""Approximate time that an ensemble spends on training its networks, on one core."""
SECONDS_PER_STEP, SECONDS_PER_ELEMENT, SECONDS_PER_VALUE = 1.1e-2, 1.7e-5, 2.8e-8
"""Approximate cost of a training step of five networks of width 64, for each of its elements, and for each feature."""
PATIENCE_IN_ENSEMBLE = 15
"""Largest number of epochs without improvement of the networks of an ensemble."""


class WeightedRows(FromFunction):
    """Chunks from a function, whose last column is the weight of each element."""

    def __init__(self, function: Callable[[], Any], name: str, *, num_features: int) -> None:
        super().__init__(function, name)
        self.width = num_features

    def convert(self, chunk: Any, index: int) -> Tensor:
        return torch.as_tensor(chunk)  # a new array, whose numbers were checked when they were read

    def checked_chunks(self, size: int) -> Iterator[Chunk]:
        self.fingerprint.begin_pass()
        start = 0
        for rows in self.rows(size):
            self.fingerprint.check(rows)
            yield Chunk(start, rows[None, :, :-1], rows[None, :, -1])
            start += len(rows)
        self.fingerprint.end_pass()
        self.count = start


@dataclass(eq=False, repr=False)
class SupervisedSetEstimator(SetNetworkEstimator):
    """Base class of :class:`SetClassifier` and :class:`SetRegressor`, which define the targets and the loss."""

    _network_class: ClassVar[type[PretrainedNetwork]] = SetPredictor
    _kind: ClassVar[Kind]
    networks_: list[SetPredictor] = field(init=False)
    ensemble_: SetEnsemble | None = field(init=False)
    validation_curve_: list[float] = field(init=False)
    best_epoch_: int = field(init=False)
    report_: dict[str, dict[str, float]] = field(init=False)
    _per_row: bool = field(init=False)
    _fill: Floats | None = field(init=False)

    pool: PredictorPool = "picaso"
    _: KW_ONLY
    method: Method = "auto"
    encoder: Encoder = "elementwise"
    dim: int = 64
    num_heads: int = 4
    num_steps: int = 3
    dropout: float = 0.1
    num_networks: int = 5
    max_iter: int = 300
    early_stopping: bool = True
    validation_fraction: float = 0.2
    n_iter_no_change: int = 40
    batch_size: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    missing: Literal["error", "mean"] = "error"
    set_column: str | None = None
    weight_column: int | str | None = None
    warm_start: bool = False
    device: Any = None
    verbose: bool = False
    random_state: Any = None

    def element_importance(self, sets: Any) -> list[Floats]:
        """Return for each set the importance of each of its elements for the prediction; sums to one over a set.

        With ``method="auto"`` it is proportional to the change of the combined prediction (log-odds, or value) when the
        element is left out, exactly, for sets of at most 64 elements. For larger sets it is the attention of the
        networks if they have more than half of the weight; otherwise, elements that are nearest to the same word of
        the vocabulary are left out together and share the change.

        With ``method="network"`` and ``pool="picaso"``, ``"attention"`` or ``"gated"``, it is the attention weight at
        the last step, averaged over heads and networks. With ``"mean"``, ``"sum"``, ``"max"`` and ``"witness"``, it is
        the normalized change of the network's output when the element is removed. With an encoder other than
        ``"elementwise"``, the pool reads encoded elements, which also contain information about the other elements.

        If no element changes the prediction, all have the same importance. Elements of weight zero have none.
        """
        read = self._read_fitted(sets, method="element_importance")
        return [self._importance(read, index) for index in range(len(read))]

    def _importance(self, read: SetList, index: int) -> Floats:
        values, weights = read.array(index)
        weights = np.ones(len(values)) if weights is None else weights
        ensemble = self.ensemble_
        if ensemble is None or (len(values) > LEAVE_ONE_OUT_SIZE and ensemble.is_led_by_networks):
            return self._attention(values, weights)
        if len(values) <= LEAVE_ONE_OUT_SIZE:
            parts = [np.array([row]) for row in np.flatnonzero(weights > 0)]
        else:
            parts = ensemble.split_by_word(values, weights)
        changes = np.zeros(len(values))
        if len(parts) > 1:
            weighted = np.column_stack([values, weights])
            variants = [weighted, *(np.delete(weighted, part, axis=0) for part in parts)]
            outputs = self._combined(SetList(variants, weighted.shape[1], read.caller, weight_index=values.shape[1]))
            for part, change in zip(parts, np.abs(outputs[1:] - outputs[0]).sum(axis=1), strict=True):
                changes[part] = change * weights[part] / weights[part].sum()
        return normalized(changes, weights)

    def _attention(self, values: Floats, weights: Floats) -> Floats:
        """Return the mean attention of the networks to each element, or the change without it."""
        if not weights.any():
            return normalized(weights, weights)
        sets = to_tensors(self._standardize([values]), self._device())
        batch = next(inference_batches(sets, to_tensors([weights], self._device())))
        with torch.no_grad():
            shares = torch.stack([network.importance(batch) for network in self.networks_]).mean(dim=0)
        return normalized(shares.double().cpu().numpy(), weights)

    def _fitted_state(self) -> dict[str, Any]:
        return {
            "loss_curve": self.loss_curve_,
            "validation_curve": self.validation_curve_,
            "best_epoch": self.best_epoch_,
            "num_networks": len(self.networks_),
            "report": self.report_,
            "per_row": self._per_row,
            "fill": None if self._fill is None else self._fill.tolist(),
        }

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.loss_curve_ = [float(loss) for loss in learned["loss_curve"]]
        self.validation_curve_ = [float(loss) for loss in learned["validation_curve"]]
        self.best_epoch_, self.n_iter_ = int(learned["best_epoch"]), len(self.loss_curve_)
        self.report_ = dict(learned.get("report", {}))
        self._per_row = bool(learned.get("per_row", False))
        fill = learned.get("fill")
        self._fill = None if fill is None else np.array(fill, dtype=float)
        if fill is not None and len(fill) != self.n_features_in_:
            raise ValueError(f"fill must be {self.n_features_in_} numbers; got {len(fill)}")
        self.device = None if self.device is None else available_device(self.device)
        return {"dim_in": self.n_features_in_}

    def _predict_trial(self, elements: Floats) -> Any:
        read = SetList([elements * self.scale_ + self.mean_], self.n_features_in_, type(self).__name__)
        return self._combined(read)

    # Reading, standardization and networks

    def _read(self, sets: Any, *, method: str) -> SetList:
        return read_set_list(
            sets,
            caller=f"{type(self).__name__}.{method}",
            set_column=self.set_column,
            weight_column=self.weight_column,
            allow_missing=self.missing == "mean",
        )

    def _read_fitted(self, sets: Any, *, method: str) -> SetList:
        """Validate the sets passed to a method of the fitted estimator."""
        check_is_fitted(self, "n_features_in_")
        read = self._read(sets, method=method)
        check_features(self, read)
        return read if self._fill is None else replace(read, fill=self._fill)

    def _by_set(self, read: SetList, values: Any) -> Any:
        """Return values for each set, from values for each set or for each row of a data frame."""
        return None if values is None else read.per_set(values, name="weight or group")

    def _read_training(self, sets: Any, y: Any) -> tuple[SetList, NDArray[Any]]:
        """Validate the parameters and the sets, and return the sets with one target for each."""
        caller = type(self).__name__
        self._check_parameters()
        read = self._read(sets, method="fit")
        targets = np.asarray(y)
        self._per_row = read.owners is not None and len(targets) == len(read.owners) != len(read)
        targets = read.per_set(targets, name="target")
        if targets.ndim == 0 or len(targets) != len(read):
            count = targets.shape[0] if targets.ndim else 0
            raise ValueError(f"{caller}.fit: expected a target for each of {len(read)} sets; got {count}.")
        self._fill = None
        if self.missing == "mean":
            self._fill = feature_means(read)
            read = replace(read, fill=self._fill)
        self.n_features_in_ = read.num_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if read.feature_names is not None:
            self.feature_names_in_ = np.array(read.feature_names, dtype=object)
        return read, targets

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check_choice(self.method, ("auto", "network"), caller=caller, name="method")
        check_choice(self.pool, POOLS, caller=caller, name="pool")
        check_choice(self.encoder, ENCODERS, caller=caller, name="encoder")
        check_choice(self.missing, ("error", "mean"), caller=caller, name="missing")
        check_device(self.device, caller=caller)
        check_positive(
            caller=caller,
            max_iter=self.max_iter,
            n_iter_no_change=self.n_iter_no_change,
            num_networks=self.num_networks,
            batch_size=self.batch_size,
            num_steps=self.num_steps,
        )
        check_above_zero(caller=caller, learning_rate=self.learning_rate)
        if not self.weight_decay >= 0:
            raise ValueError(f"{caller}: weight_decay must not be negative; got {self.weight_decay}.")
        if self.warm_start and self.method == "auto":
            raise ValueError(
                f"{caller}: warm_start=True needs method='network'; with 'auto', networks would be weighted by their "
                "predictions for sets that they learned from in the last fit."
            )
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"{caller}: validation_fraction must be between 0 and 1; got {self.validation_fraction}.")

    def _fit(
        self,
        read: SetList,
        strata: Indices | None,
        num_outputs: int,
        prepare_targets: Callable[[Indices], tuple[NDArray[Any], Loss]],
        *,
        set_weights: Floats | None,
        groups: Any,
    ) -> None:
        """Train the networks, and with ``method="auto"`` the ensemble that they are members of.

        ``strata`` are the classes, which every fold has alike, or None. ``prepare_targets`` receives the indices of
        the training sets, and returns the targets of all sets and the loss.
        """
        if self.method == "auto" and set_weights is not None and not set_weights.all():
            # Otherwise all sets of a class in the training part of a fold might have the weight zero.
            check_groups(groups, len(read), caller=f"{type(self).__name__}.fit")
            kept = np.flatnonzero(set_weights)
            read, set_weights = read.subset(kept), set_weights[kept] / set_weights[kept].mean()
            strata, groups = (None if values is None else np.asarray(values)[kept] for values in (strata, groups))
            prepare_targets = restrict_targets(prepare_targets, kept)
            if strata is not None and len(np.unique(strata)) < 2:
                raise ValueError(f"{type(self).__name__}.fit: expected at least 2 classes with sets of weight above 0.")
        seed = draw_seed(self.random_state)
        folds = self._split(strata, groups, len(read), seed=seed)
        if self.method == "auto" and not folds:
            warnings.warn(
                f"{type(self).__name__}.fit: there are too few sets or groups for inner cross-validation, which needs "
                "two of each of two classes; all members have equal weights, and there are no networks.",
                stacklevel=3,
            )
        held_out = np.zeros((max(len(folds), 1), len(read)), dtype=np.bool_)
        for row, (_, test) in enumerate(folds):
            held_out[row, test] = True
        if self.method == "network" and not self.early_stopping:
            held_out = np.zeros((self.num_networks, len(read)), dtype=np.bool_)
        training_indices = np.flatnonzero(~held_out.all(axis=0))
        targets, loss_function = prepare_targets(training_indices)
        previous = self.networks_ if self.warm_start and hasattr(self, "networks_") else []
        if not previous or previous[0].config["dim_in"] != read.num_features:
            self.mean_, self.scale_, _ = feature_scales(read.subset(training_indices), check_random_state(seed))
        with_networks = self.method == "network" or bool(folds)
        epochs, patience = self.max_iter, self.n_iter_no_change
        if self.method == "auto":
            epochs = min(epochs, self._affordable_epochs(read))
            patience = min(patience, PATIENCE_IN_ENSEMBLE)
        self.networks_, self.loss_curve_, self.validation_curve_, self.best_epoch_ = [], [], [], 0
        steps = epochs if self.method == "network" else with_networks * epochs + len(FEATURES)
        with watch_steps(type(self).__name__, first=0, steps=steps, silent=not self.verbose) as watcher:
            scores: Floats | None = None
            if with_networks:
                trained = self._train(
                    read, targets, loss_function, held_out, num_outputs, previous, set_weights, seed=seed,
                    max_epochs=epochs, patience=patience, watcher=watcher,
                )  # fmt: skip
                self.networks_, outputs, self.loss_curve_, self.validation_curve_, self.best_epoch_ = trained
                scores = outputs.double().cpu().numpy()
                if self._kind == "classification":
                    scores = log_softmax(scores) if len(scores) else scores
            self.n_iter_ = len(self.loss_curve_)
            self.ensemble_ = None
            self.report_ = {}
            if self.method == "network":
                weight, losses = 1.0, self.validation_curve_
                self.report_ = {NETWORK: {"weight": weight} | ({"loss": min(losses)} if losses else {})}
                return
            self.ensemble_ = SetEnsemble(self._kind, num_outputs).fit(
                read,
                targets,
                folds=folds,
                set_weights=set_weights,
                seed=seed,
                network_scores=scores,
                advance=lambda name: watcher.advance(1, name),
            )
            self.report_ = self.ensemble_.report

    def _train(
        self,
        read: SetList,
        targets: NDArray[Any],
        loss_function: Loss,
        held_out: NDArray[np.bool_],
        num_outputs: int,
        previous: Sequence[SetPredictor],
        set_weights: Floats | None,
        *,
        seed: int,
        max_epochs: int,
        patience: int,
        warmup_steps: int = WARMUP_STEPS,
        watcher: Watcher | None = None,
    ) -> TrainedNetworks:
        generator, device = np.random.default_rng(seed), self._device()
        kinds = dict(dim_in=read.num_features, dim_out=num_outputs)
        reuse = len(previous) == len(held_out) and kinds.items() <= previous[0].config.items()
        with seeded_torch(seed):
            networks = list(previous) if reuse else [self._build(read, num_outputs) for _ in held_out]
            tensor = torch.as_tensor(targets, device=device)
            sets, element_weights = self._training_tensors(read, generator)
            return train_networks(
                [network.to(device) for network in networks],
                sets,
                tensor.float() if tensor.is_floating_point() else tensor,
                loss_function,
                held_out=torch.as_tensor(held_out),
                set_weights=None if set_weights is None else torch.as_tensor(set_weights).float(),
                element_weights=element_weights,
                max_epochs=max_epochs,
                patience=patience,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                generator=generator,
                warmup_steps=warmup_steps,
                watcher=watcher,
            )

    def _build(self, read: SetList, num_outputs: int) -> SetPredictor:
        return SetPredictor(
            read.num_features,
            num_outputs,
            dim=self.dim,
            pool=self.pool,
            encoder=self.encoder,
            num_heads=self.num_heads,
            num_steps=self.num_steps,
            typical_size=max(float(np.mean([total_weight(read, index) for index in range(len(read))])), 1e-12),
            dropout=self.dropout,
        )

    def _split(self, strata: Indices | None, groups: Any, num_sets: int, *, seed: int) -> Folds:
        """Return the training and test sets of each fold: the inner folds of an ensemble, or a network's validation."""
        caller = f"{type(self).__name__}.fit"
        check_groups(groups, num_sets, caller=caller)
        names = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
        if self.method == "network" and not self.early_stopping:
            return []
        num_folds = INNER_FOLDS if self.method == "auto" else self.num_networks
        single = num_folds == 1
        if single and names is None:
            generator = np.random.default_rng(seed)
            classes = np.zeros(num_sets, dtype=np.int64) if strata is None else strata
            validation = draw_validation_indices(classes, self.validation_fraction, generator=generator)
            folds = [(np.setdiff1d(np.arange(num_sets), validation), validation)] if len(validation) else []
        else:
            num_folds = max(round(1 / self.validation_fraction), 2) if single else num_folds
            folds = split_inner_folds(num_folds, strata, names, num_sets, seed=seed)[: 1 if single else None]
        if not folds and self.method == "network":
            raise ValueError(
                f"{caller}: {num_sets} sets are too few to use {self.validation_fraction:.0%} "
                "of them for early stopping; pass early_stopping=False, or a larger validation_fraction."
            )
        return folds

    def _affordable_epochs(self, read: SetList) -> int:
        """Return the number of epochs that take about ``NETWORK_SECONDS``; at least three."""
        sizes = np.minimum(read.sizes(), MAX_TRAINING_SIZE)
        padded = len(read) * (sizes.mean() + sizes.max()) / 2
        width = self.dim / 64
        per_epoch = SECONDS_PER_STEP * -(-len(read) // self.batch_size)
        per_epoch += padded * width * (SECONDS_PER_ELEMENT + SECONDS_PER_VALUE * read.num_features)
        return max(int(NETWORK_SECONDS / per_epoch), 3)

    def _device(self) -> torch.device:
        return torch.device("cpu" if self.device is None else self.device)

    def _training_tensors(
        self, read: SetList, generator: np.random.Generator
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return the sets as the networks learn from them, and weights: in memory, or a sample of those in files."""
        arrays, weights = list[Floats](), list[Floats | None]()
        for index, elements in enumerate(read.sets):
            # The sample of a file is drawn by the weights, so they do not count again.
            sampled = isinstance(elements, SetFile)
            values, element_weights = (
                (sample_elements(read, index, FILE_SAMPLE, generator), None)
                if sampled
                else present_elements(read, index)
            )
            arrays.append(values)
            weights.append(element_weights)
        return self._tensors(read, arrays, weights)

    def _tensors(
        self, read: SetList, arrays: Sequence[Floats], weights: Sequence[Floats | None]
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return standardized elements and their weights as tensors; None if no column holds weights."""
        sets = to_tensors(self._standardize(arrays), self._device())
        if read.weight_index is None:
            return sets, None
        filled = [
            np.ones(len(array)) if element_weights is None else element_weights
            for array, element_weights in zip(arrays, weights, strict=True)
        ]
        return sets, to_tensors(filled, self._device())

    def _network_outputs(self, read: SetList) -> Floats:
        """Return the outputs of every network for every set, (S, B, O); sets in files are streamed."""
        in_memory = [index for index, elements in enumerate(read.sets) if not isinstance(elements, SetFile)]
        parts = [present_elements(read, index) for index in in_memory]
        sets, weights = self._tensors(read, [values for values, _ in parts], [weight for _, weight in parts])
        outputs = np.zeros((len(self.networks_), len(read), int(self.networks_[0].config["dim_out"])))
        for row, network in enumerate(self.networks_):
            network.to(self._device())
            if sets:
                outputs[row, in_memory] = predict_sets(network, sets, weights).double().cpu().numpy()
            for index in set(range(len(read))) - set(in_memory):
                with torch.no_grad():
                    source = WeightedRows(
                        self._chunks(read, index), str(read.sets[index]), num_features=read.num_features
                    )
                    outputs[row, index] = stream(network.cpu(), source).double().numpy().ravel()
        return outputs

    def _chunks(self, read: SetList, index: int) -> Callable[[], Iterator[NDArray[np.float32]]]:
        def chunks() -> Iterator[NDArray[np.float32]]:
            for values, weights in read.chunks(index):
                (standardized,) = self._standardize([values])
                weights = np.ones(len(values)) if weights is None else weights
                yield np.column_stack([standardized, weights]).astype(np.float32)

        return chunks

    def _network_scores(self, read: SetList) -> Floats:
        """Return the mean log-probabilities, or the mean predictions, of the networks, (B, O)."""
        outputs = self._network_outputs(read)
        if self._kind == "regression":
            return outputs.mean(axis=0)
        return np.stack([log_softmax(logits) for logits in outputs]).mean(axis=0)

    def _combined(self, read: SetList) -> Floats:
        """Return the log-probabilities of the classes, or the standardized predictions, (B, O)."""
        if self.ensemble_ is not None:
            return self.ensemble_.predict(read, lambda: self._network_scores(read))
        outputs = self._network_outputs(read)
        if self._kind == "regression":
            return outputs.mean(axis=0)
        # The mean of probabilities, not of their logarithms, is calibrated if every network is.
        return np.log(np.exp(np.stack([log_softmax(logits) for logits in outputs])).mean(axis=0))

    def _outputs(self, sets: Any, *, method: str) -> Floats:
        """Return the combined prediction for every set, or for every row of a data frame with targets by row."""
        read = self._read_fitted(sets, method=method)
        outputs = check_finite(self._combined(read), caller=read.caller)
        return outputs[read.owners] if self._per_row and read.owners is not None else outputs

    def _partial_fit(
        self, read: SetList, targets: NDArray[Any], loss_function: Loss, num_outputs: int, set_weights: Floats | None
    ) -> None:
        """Continue the training of the networks by one epoch."""
        if self.method != "network":
            raise ValueError(
                f"{type(self).__name__}.partial_fit needs method='network': the other members of an ensemble cannot "
                "learn from a part of the sets at a time."
            )
        previous = getattr(self, "networks_", [])
        if not previous:
            self.mean_, self.scale_, _ = feature_scales(read, check_random_state(0))
            self.loss_curve_, self.validation_curve_, self.ensemble_ = [], [], None
        trained = self._train(
            read, targets, loss_function, np.zeros((self.num_networks, len(read)), dtype=np.bool_), num_outputs,
            previous, set_weights, seed=draw_seed(self.random_state) + len(self.loss_curve_), max_epochs=1, patience=1,
            warmup_steps=0,
        )  # fmt: skip
        self.networks_ = trained.networks
        self.loss_curve_ = [*self.loss_curve_, *trained.training]
        self.best_epoch_, self.n_iter_ = len(self.loss_curve_) - 1, len(self.loss_curve_)
        self.report_ = {NETWORK: {"weight": 1.0}}

    # Saving and loading

    @classmethod
    def _upgrade(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"method": "network", "num_networks": 1, **parameters}  # version 0.1 had one network and nothing else

    @property
    def network_(self) -> SetPredictor:
        """The first of the trained networks."""
        if not self.networks_:
            raise AttributeError(f"this {type(self).__name__} has no networks: there were too few sets to train them.")
        return self.networks_[0]

    def _save_networks(self, directory: Path) -> None:
        for index, network in enumerate(self.networks_):
            network.cpu().save_pretrained(directory if len(self.networks_) == 1 else directory / f"network_{index}")
        if self.ensemble_ is not None:
            arrays: dict[str, NDArray[Any]] = {}
            text = json.dumps(encode(vars(self.ensemble_), arrays))
            with atomic_write(directory / MEMBERS_FILE) as unfinished:
                save_file(arrays, unfinished, metadata={"ensemble": text})

    def _load_networks(self, directory: Path, learned: dict[str, Any], sizes: dict[str, int]) -> None:
        count = int(learned.get("num_networks", 1))
        if not 0 <= count <= MAX_NETWORKS:
            raise ValueError(f"{directory / FILE}: num_networks must be 0 to {MAX_NETWORKS}; got {count}.")
        folders = [directory] if count == 1 else [directory / f"network_{index}" for index in range(count)]
        self.networks_ = [SetPredictor.from_pretrained(folder) for folder in folders]
        for network in self.networks_:
            self._check_sizes(network, directory, sizes)
        self.ensemble_ = None
        if self.method == "auto":
            self.ensemble_ = read_ensemble(directory / MEMBERS_FILE, caller=type(self).__name__)
        elif not count:
            raise ValueError(f"{directory / FILE}: num_networks must be at least 1 with this method; got 0.")


def read_ensemble(path: Path, *, caller: str) -> SetEnsemble:
    """Read the members that ``save`` wrote."""
    try:
        with cast(Any, safe_open)(path, framework="numpy") as file:
            arrays: dict[str, NDArray[Any]] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dictionary
            described: Any = parse_json(file.metadata()["ensemble"])
        return SetEnsemble(**decode(described, arrays))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; save the {caller} again.") from None
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        raise ValueError(
            f"{path} does not hold the members of a {caller} that this version of scikit-learn can use: {error}. Fit "
            "and save it again."
        ) from None


def read_labels(values: list[Any], dtype: str) -> NDArray[Any]:
    """Return the classes in a file as an array; string widths are computed from the values, not read from the file."""
    kind = np.dtype(dtype)
    if kind.kind == "O" and all(isinstance(value, str) for value in values):  # texts of a data frame
        return np.array(values, dtype=object)
    if kind.kind not in "iufbU":
        raise ValueError(f"dtype must be that of texts, numbers or booleans; got {dtype!r}")
    return np.array(values, dtype=str if kind.kind == "U" else kind)


def split_folds(
    num_folds: int, strata: Indices | None, groups: Indices | None, num_sets: int, *, seed: int
) -> list[tuple[Indices, Indices]]:
    """Split sets into folds, stratified by class and with whole groups; fewer folds if there are few sets, or none."""
    units = np.arange(num_sets) if groups is None else groups
    if strata is None:
        available = len(np.unique(units))
    else:
        available = min(len(np.unique(units[strata == stratum])) for stratum in np.unique(strata))
    num_folds = min(num_folds, available)
    if num_folds < 2:
        return []
    options = dict(n_splits=num_folds, shuffle=True, random_state=seed)
    splitter = {
        (True, True): KFold,
        (True, False): GroupKFold,
        (False, True): StratifiedKFold,
        (False, False): StratifiedGroupKFold,
    }[strata is None, groups is None](**options)
    return [(training, test) for training, test in splitter.split(np.zeros(num_sets), strata, groups) if len(test)]


def split_inner_folds(
    num_folds: int, strata: Indices | None, groups: Indices | None, num_sets: int, *, seed: int
) -> list[tuple[Indices, Indices]]:
    """Split sets into folds as ``split_folds`` does, with the sets of rare classes in the training part.

    A class is rare if it has one set, or one group: then it cannot be in both parts of a fold. Without the others of
    its group it is never in the test part.
    """
    units = np.arange(num_sets) if groups is None else groups
    rare = (
        [] if strata is None else [label for label in np.unique(strata) if len(np.unique(units[strata == label])) < 2]
    )
    if strata is None or not rare:
        return split_folds(num_folds, strata, groups, num_sets, seed=seed)
    common = np.flatnonzero(~np.isin(strata, rare))
    if len(np.unique(strata[common])) < 2:
        return []
    folds = split_folds(num_folds, strata[common], None if groups is None else groups[common], len(common), seed=seed)
    tested = [np.isin(units, units[common[test]]) for _, test in folds]
    return [(np.flatnonzero(~chosen), np.flatnonzero(chosen)) for chosen in tested]


def to_tensors(arrays: Sequence[Floats], device: torch.device) -> list[Tensor]:
    return [torch.as_tensor(array, device=device).float() for array in arrays]


def present_elements(read: SetList, index: int) -> tuple[Floats, Floats | None]:
    """Return the elements of a set whose weight is not zero, and the weights."""
    values, weights = read.array(index)
    return (values, None) if weights is None else (values[weights > 0], weights[weights > 0])


def total_weight(read: SetList, index: int) -> float:
    """Return the number of elements of a set, or the sum of their weights."""
    if read.weight_index is None:
        return float(len(read.sets[index]))
    return sum(float(np.sum(weights)) for _, weights in read.chunks(index) if weights is not None)


def normalized(changes: Floats, weights: Floats) -> Floats:
    """Scale importances to sum to one; where all are zero, elements are important in proportion to their weights."""
    changes = changes if changes.sum() > 0 else weights if weights.sum() > 0 else np.ones_like(weights)
    return changes / changes.sum()


def feature_means(read: SetList) -> Floats:
    """Return the mean of the values of each feature that are not missing."""
    totals, counts = np.zeros(read.num_features), np.zeros(read.num_features)
    for index in range(len(read)):
        for values, _ in read.chunks(index):
            totals += np.nansum(values, axis=0)
            counts += (~np.isnan(values)).sum(axis=0)
    if not counts.all():
        raise ValueError(f"{read.caller}: column {int(counts.argmin())} has no values, only missing ones; drop it.")
    return totals / counts


def check_given(y: Any, *, caller: str) -> None:
    if y is None:
        raise ValueError(f"{caller} requires y to be passed, but the target y is None.")


def check_set_weights(values: Any, num_sets: int, *, caller: str) -> Floats | None:
    """Return weights of sets as an array with a mean of one, or None."""
    if values is None:
        return None
    weights = np.asarray(values, dtype=np.float64)
    if weights.shape != (num_sets,):
        raise ValueError(f"{caller}: expected a weight for each of {num_sets} sets; got shape {weights.shape}.")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(f"{caller}: sample_weight must contain non-negative finite numbers, at least one above zero.")
    return weights / weights.mean()


def check_groups(groups: Any, num_sets: int, *, caller: str) -> None:
    if groups is not None and (count := len(np.asarray(groups))) != num_sets:
        raise ValueError(f"{caller}: expected a group for each of {num_sets} sets; got {count}.")


def restrict_targets(
    prepare_targets: Callable[[Indices], tuple[NDArray[Any], Loss]], kept: Indices
) -> Callable[[Indices], tuple[NDArray[Any], Loss]]:
    """Return the function for some of the sets from the one for all of them."""

    def prepare_kept(training_indices: Indices) -> tuple[NDArray[Any], Loss]:
        targets, loss_function = prepare_targets(kept[training_indices])
        return targets[kept], loss_function

    return prepare_kept


@dataclass(kw_only=True, eq=False, repr=False)
class SetClassifier(ClassifierMixin, SupervisedSetEstimator):
    """Classify sets of vectors (multiple-instance learning: bags have labels, elements have none).

    The default is an ensemble: two kinds of trees and a support vector machine on statistics of each set, the set
    kernel, trees on a vocabulary of elements, and networks with an attention pool, combined and calibrated by inner
    cross-validation.
    ``report_`` says what each of them contributed. ``method="network"`` trains the networks alone, for longer. Sets may
    have any sizes, and the order of the elements does not matter.

    Args:
        pool: Pooling operator of the networks: ``"picaso"`` (repeated attention), ``"attention"`` (attention with one
            learned query), ``"gated"`` (gated attention, Ilse 2018), ``"mean"``, ``"sum"``, ``"max"``, or
            ``"witness"``, the largest of one score per element, so that more elements never make the second of two
            classes less likely.
        method: ``"auto"`` for the ensemble, ``"network"`` for the networks alone.
        encoder: ``"elementwise"`` encodes every element by itself; with ``"induced"`` and ``"self"`` elements attend to
            each other first, which needs more training sets.
        dim: Width of the networks.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of attention steps of ``"picaso"``.
        dropout: Dropout probability.
        num_networks: Number of networks with ``method="network"``, trained together; each is validated on another part
            of the sets, and their probabilities are averaged.
        max_iter: Maximum number of epochs; the ensemble takes fewer if they would take long.
        early_stopping: With ``method="network"``, whether to stop when the loss on validation sets has not improved for
            ``n_iter_no_change`` epochs, and to keep the weights with the lowest validation loss.
        validation_fraction: Share of the sets of each class in the validation split of a single network.
        n_iter_no_change: Number of epochs without improvement before training stops.
        batch_size: Number of sets per training step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        missing: ``"error"`` refuses NaN; ``"mean"`` replaces it by the mean of the feature in the training sets.
        set_column: Column of a data frame that identifies the set of each row.
        weight_column: Column with the weight of each element: an index, or a name with a data frame. An element of
            weight w counts as w copies.
        warm_start: With ``method="network"``, whether ``fit`` continues from the networks of the last fit.
        device: Device of the networks, such as ``"cuda"``; the CPU by default.
        verbose: Whether to show a progress bar.
        class_weight: None, ``"balanced"``, or a dictionary with the weight of each class in the loss.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        classes_: The class labels, sorted; with several labels per set, their indices.
        report_: For each member of the ensemble, its weight and its loss on sets that it was not trained on.
        networks_: The trained networks.
        network_: The first of them.
        ensemble_: The members of the ensemble; None with ``method="network"``.
        mean_: Mean of each feature in the training sets.
        scale_: Standard deviation of each feature in the training sets; 1 for constant features.
        loss_curve_: Training loss of every epoch of the networks.
        validation_curve_: Validation loss of every epoch; empty without early stopping.
        best_epoch_: Epoch whose weights the networks have.
        n_iter_: Number of epochs.
        n_features_in_: Number of features of an element.
        feature_names_in_: Names of the features, if fitted with a data frame.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(40)]
        >>> labels = ["some" if (bag[:, 0] > 1).any() else "none" for bag in bags]
        >>> classifier = SetClassifier(dim=16, max_iter=5, random_state=0).fit(bags, labels)
        >>> bag = [[-1.0, 0.3], [3.0, 0.1], [-0.5, -0.2]]
        >>> classifier.predict([bag]).tolist(), classifier.element_importance([bag])[0].argmax()
        (['some'], np.int64(1))
    """

    _kind = "classification"
    classes_: NDArray[Any] = field(init=False)
    label_estimators_: list["SetClassifier"] = field(init=False)

    class_weight: Literal["balanced"] | dict[Any, float] | None = None

    def fit(self, sets: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> "SetClassifier":
        """Train on sets with a class label for each, or a row of zeros and ones for several labels.

        Args:
            sets: A list of arrays (n, D) or of paths of .npy and .parquet files, a SetBatch, or a long data frame.
            y: Labels (B,), or (B, L) of zeros and ones. With a data frame, there may be a label for each row; then
                predictions have one row for each row, too.
            sample_weight: Weight of each set.
            groups: Group of each set, such as the patient; sets of a group are never split between the training and
                the validation sets of the inner cross-validation.
        """
        check_given(y, caller="SetClassifier.fit")
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] > 1 and np.isin(labels, (0, 1)).all():
            return self._fit_labels(sets, labels, sample_weight, groups)
        self.label_estimators_ = []
        if labels.ndim != 1:
            raise ValueError(
                f"SetClassifier.fit: expected one label for each set; got labels of shape {labels.shape}. Several "
                "labels per set are a row of zeros and ones for each."
            )
        read, labels = self._read_training(sets, labels)
        weights = check_set_weights(self._by_set(read, sample_weight), len(read), caller="SetClassifier.fit")
        self.classes_, codes = self._encode(labels)
        weights = self._class_weights(labels, codes, weights)
        self._fit(
            read,
            codes,
            len(self.classes_),
            lambda training: (codes, classification_loss),
            set_weights=weights,
            groups=self._by_set(read, groups),
        )
        return self

    def partial_fit(self, sets: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "SetClassifier":
        """Train the networks for one epoch on further sets; needs ``method="network"``.

        Args:
            sets: Sets, as for ``fit``.
            y: A label for each set.
            classes: All labels that will occur; needed in the first call.
            sample_weight: Weight of each set.
        """
        first = not getattr(self, "networks_", [])
        read, labels = self._read_training(sets, y)
        if first:
            if classes is None:
                raise ValueError("SetClassifier.partial_fit: classes must list all labels in the first call; got None.")
            self.classes_, self.label_estimators_ = np.unique(np.asarray(classes)), []
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(
                "SetClassifier.partial_fit: labels must be among the classes of the first call, "
                f"{self.classes_.tolist()}; got {labels[unknown][0].item()!r}."
            )
        codes = np.searchsorted(self.classes_, labels).astype(np.int64)
        weights = check_set_weights(sample_weight, len(read), caller="SetClassifier.partial_fit")
        self._partial_fit(read, codes, classification_loss, len(self.classes_), weights)
        return self

    def predict_proba(self, sets: Any) -> Floats:
        """Return the probability of each class for every set; columns are in the order of ``classes_``."""
        if self.label_estimators_of(self):
            return np.stack([estimator.predict_proba(sets)[:, 1] for estimator in self.label_estimators_], axis=1)
        return np.exp(self._outputs(sets, method="predict_proba"))

    def decision_function(self, sets: Any) -> Floats:
        """Return the log-odds of the second class for every set, or the log-probabilities of more than two classes."""
        if self.label_estimators_of(self):
            return np.stack([estimator.decision_function(sets) for estimator in self.label_estimators_], axis=1)
        logs = self._outputs(sets, method="decision_function")
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def predict(self, sets: Any) -> NDArray[Any]:
        """Return the most likely class of every set."""
        if self.label_estimators_of(self):
            return (self.decision_function(sets) > 0).astype(np.int64)
        return self.classes_[self._outputs(sets, method="predict").argmax(axis=1)]

    def element_importance(self, sets: Any) -> list[Floats]:
        if self.label_estimators_of(self):
            by_label = [estimator.element_importance(sets) for estimator in self.label_estimators_]
            return [np.mean(shares, axis=0) for shares in zip(*by_label, strict=True)]
        return SupervisedSetEstimator.element_importance(self, sets)

    element_importance.__doc__ = SupervisedSetEstimator.element_importance.__doc__

    @staticmethod
    def label_estimators_of(classifier: "SetClassifier") -> list["SetClassifier"]:
        """Return the classifiers of the single labels; none if there is one label per set."""
        check_is_fitted(classifier, "label_estimators_")
        return classifier.label_estimators_

    def _fit_labels(self, sets: Any, labels: NDArray[Any], sample_weight: Any, groups: Any) -> "SetClassifier":
        """Fit one classifier for each of several labels."""
        estimators = list[SetClassifier]()
        for index in range(labels.shape[1]):
            if len(np.unique(labels[:, index])) < 2:
                raise ValueError(f"SetClassifier.fit: label {index} is the same for all sets; drop its column.")
            estimators.append(clone(self).fit(sets, labels[:, index], sample_weight, groups))
        first = estimators[0]
        self.label_estimators_, self.classes_ = estimators, np.arange(labels.shape[1])
        self.n_features_in_, self.mean_, self.scale_ = first.n_features_in_, first.mean_, first.scale_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = cast(Any, first).feature_names_in_
        self.report_ = {
            f"label {index}, {name}": entry
            for index, estimator in enumerate(estimators)
            for name, entry in estimator.report_.items()
        }
        return self

    def _encode(self, labels: NDArray[Any]) -> tuple[NDArray[Any], Indices]:
        """Return the classes and the index of the class of each set."""
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            index = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"SetClassifier.fit: labels must be finite; the label of set {index} is {labels[index]}.")
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"SetClassifier.fit: expected at least 2 classes, got one class: all sets are {classes.tolist()[0]!r}."
            )
        return classes, codes.astype(np.int64)

    def _class_weights(self, labels: NDArray[Any], codes: Indices, set_weights: Floats | None) -> Floats | None:
        """Return the weight of each set times that of its class."""
        if self.class_weight is None:
            return set_weights
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError(
                "SetClassifier.fit: class_weight must contain non-negative finite numbers, at least one above zero; "
                f"got {self.class_weight}."
            )
        return weights[codes] * (1.0 if set_weights is None else set_weights)

    def _fitted_state(self) -> dict[str, Any]:
        classes = {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}
        if self.label_estimators_:
            return classes | {"num_labels": len(self.label_estimators_), "report": self.report_}
        return SupervisedSetEstimator._fitted_state(self) | classes

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.classes_ = read_labels(learned["classes"], learned["dtype"])
        self.label_estimators_ = []
        if "num_labels" in learned:
            if not 0 < learned["num_labels"] == len(self.classes_):
                raise ValueError("num_labels and classes must have the same number of labels")
            self.report_ = dict(learned["report"])
            return {}
        return SupervisedSetEstimator._restore_state(self, learned) | {"dim_out": len(self.classes_)}

    def _save_networks(self, directory: Path) -> None:
        for index, estimator in enumerate(self.label_estimators_):
            estimator.save(directory / f"label_{index}")
        if not self.label_estimators_:
            SupervisedSetEstimator._save_networks(self, directory)

    def _load_networks(self, directory: Path, learned: dict[str, Any], sizes: dict[str, int]) -> None:
        count = int(learned.get("num_labels", 0))
        self.label_estimators_ = [SetClassifier.load(directory / f"label_{index}") for index in range(count)]
        if not count:
            SupervisedSetEstimator._load_networks(self, directory, learned, sizes)
        if any(
            label.label_estimators_ or label.n_features_in_ != self.n_features_in_ for label in self.label_estimators_
        ):
            raise ValueError(f"{directory} holds the labels of another estimator than {FILE} describes.")

    def _predict_trial(self, elements: Floats) -> Any:
        return [] if self.label_estimators_ else SupervisedSetEstimator._predict_trial(self, elements)


class SetRegressor(RegressorMixin, SupervisedSetEstimator):
    """Predict one or several numbers for each set of vectors.

    The default is an ensemble, as in :class:`SetClassifier`. Targets are standardized by their mean and standard
    deviation in the sets used for training; predictions are in the units of the targets. For quantities that add up
    over the elements, use ``pool="sum"``: with the other pools, the prediction of the networks does not change if all
    elements of a set are duplicated.

    Args:
        pool: Pooling operator of the networks: ``"picaso"`` (repeated attention), ``"attention"`` (attention with one
            learned query), ``"gated"`` (gated attention, Ilse 2018), ``"mean"``, ``"sum"``, ``"max"``, or
            ``"witness"``, the largest of one score per element, for one output.
        method: ``"auto"`` for the ensemble, ``"network"`` for the networks alone.
        encoder: ``"elementwise"`` encodes every element by itself; with ``"induced"`` and ``"self"`` elements attend to
            each other first, which needs more training sets.
        dim: Width of the networks.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of attention steps of ``"picaso"``.
        dropout: Dropout probability.
        num_networks: Number of networks with ``method="network"``, trained together; each is validated on another part
            of the sets, and their predictions are averaged.
        max_iter: Maximum number of epochs; the ensemble takes fewer if they would take long.
        early_stopping: With ``method="network"``, whether to stop when the loss on validation sets has not improved for
            ``n_iter_no_change`` epochs, and to keep the weights with the lowest validation loss.
        validation_fraction: Share of the sets in the validation split of a single network.
        n_iter_no_change: Number of epochs without improvement before training stops.
        batch_size: Number of sets per training step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        missing: ``"error"`` refuses NaN; ``"mean"`` replaces it by the mean of the feature in the training sets.
        set_column: Column of a data frame that identifies the set of each row.
        weight_column: Column with the weight of each element: an index, or a name with a data frame. An element of
            weight w counts as w copies.
        warm_start: With ``method="network"``, whether ``fit`` continues from the networks of the last fit.
        device: Device of the networks, such as ``"cuda"``; the CPU by default.
        verbose: Whether to show a progress bar.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        report_: For each member of the ensemble, its weight and half its mean squared error (of standardized targets)
            on sets that it was not trained on.
        networks_: The trained networks.
        network_: The first of them.
        ensemble_: The members of the ensemble; None with ``method="network"``.
        mean_: Mean of each feature in the training sets.
        scale_: Standard deviation of each feature in the training sets; 1 for constant features.
        target_mean_: Mean of each target in the training sets.
        target_scale_: Standard deviation of each target in the training sets; 1 for constant targets.
        one_number_: Whether the targets were one-dimensional, as the predictions then are.
        loss_curve_: Training loss of every epoch of the networks.
        validation_curve_: Validation loss of every epoch; empty without early stopping.
        best_epoch_: Epoch whose weights the networks have.
        n_iter_: Number of epochs.
        n_features_in_: Number of features of an element.
        feature_names_in_: Names of the features, if fitted with a data frame.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(60)]
        >>> largest = [bag[:, 0].max() for bag in bags]
        >>> regressor = SetRegressor(dim=16, max_iter=5, random_state=0).fit(bags, largest)
        >>> regressor.score(bags, largest) > 0.8
        True
    """

    _kind = "regression"

    def fit(self, sets: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> "SetRegressor":
        """Train on sets with targets of shape (B,) or (B, outputs).

        Args:
            sets: A list of arrays (n, D) or of paths of .npy and .parquet files, a SetBatch, or a long data frame.
            y: Targets. With a data frame, there may be a target for each row; then predictions have one for each row.
            sample_weight: Weight of each set.
            groups: Group of each set, such as the patient; sets of a group are never split between the training and
                the validation sets of the inner cross-validation.
        """
        read, columns = self._read_targets(sets, y)
        weights = check_set_weights(self._by_set(read, sample_weight), len(read), caller="SetRegressor.fit")

        def prepare_targets(training_indices: Indices) -> tuple[NDArray[Any], Loss]:
            self.target_mean_, self.target_scale_ = mean_and_scale(columns[training_indices])
            return (columns - self.target_mean_) / self.target_scale_, regression_loss

        self._fit(read, None, columns.shape[1], prepare_targets, set_weights=weights, groups=self._by_set(read, groups))
        return self

    def partial_fit(self, sets: Any, y: Any, sample_weight: Any = None) -> "SetRegressor":
        """Train the networks for one epoch on further sets; needs ``method="network"``."""
        first = not getattr(self, "networks_", [])
        read, columns = self._read_targets(sets, y)
        if first:
            self.target_mean_, self.target_scale_ = mean_and_scale(columns)
        targets = (columns - self.target_mean_) / self.target_scale_
        weights = check_set_weights(sample_weight, len(read), caller="SetRegressor.partial_fit")
        self._partial_fit(read, targets, regression_loss, columns.shape[1], weights)
        return self

    def predict(self, sets: Any) -> Floats:
        """Return the prediction for every set, (B,) or (B, outputs) as the targets of ``fit``."""
        outputs = self._outputs(sets, method="predict")
        predicted = outputs * self.target_scale_ + self.target_mean_
        return predicted[:, 0] if self.one_number_ else predicted

    def _read_targets(self, sets: Any, y: Any) -> tuple[SetList, Floats]:
        """Validate the sets and the targets, and return the targets as columns."""
        check_given(y, caller="SetRegressor.fit")
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"SetRegressor.fit: targets must be numbers: {error}.") from None
        if values.ndim not in (1, 2) or values.shape[1:] == (0,):
            raise ValueError(
                f"SetRegressor.fit: expected targets of shape (sets,) or (sets, outputs); got {values.shape}."
            )
        if not np.isfinite(values).all():
            index = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(f"SetRegressor.fit: targets must be finite; the target of set {index} is {values[index]}.")
        read, values = self._read_training(sets, values)
        self.one_number_ = values.ndim == 1
        return read, values[:, None] if values.ndim == 1 else values

    def _fitted_state(self) -> dict[str, Any]:
        targets = {
            "target_mean": self.target_mean_.tolist(),
            "target_scale": self.target_scale_.tolist(),
            "one_number": self.one_number_,
        }
        return SupervisedSetEstimator._fitted_state(self) | targets

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.target_mean_ = np.array(learned["target_mean"], dtype=float)
        self.target_scale_ = np.array(learned["target_scale"], dtype=float)
        self.one_number_ = bool(learned["one_number"])
        return SupervisedSetEstimator._restore_state(self, learned) | {"dim_out": len(self.target_mean_)}


def classification_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of every network and set, (S, b)."""
    return cross_entropy(outputs.movedim(-1, 1), targets.expand(outputs.shape[:2]), reduction="none")


def regression_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of every network and set, (S, b)."""
    return (outputs - targets).square().mean(dim=-1)
