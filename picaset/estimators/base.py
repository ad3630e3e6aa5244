"""Base class of the estimators that train a network on sets: validation, standardization, saving and loading.

A saved estimator is a folder of JSON and safetensors. It contains no pickle, so a folder from an untrusted source can
be loaded without executing its code.

    DIRECTORY/config.json, model.safetensors    the network; see :class:`PretrainedNetwork`
    DIRECTORY/estimator.json                    format, its version, estimator, its parameters, fitted attributes
"""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from picaset.estimators.validation import BaseEstimator, check_is_fitted, read_sets
from picaset.files import atomic_write, check_known, create_folder, describe_value, read_json, read_value
from picaset.pretrained import PretrainedNetwork, check_magnitude

Floats = NDArray[np.float64]
FILE = "estimator.json"
FORMAT = "picaset-estimator"
FORMAT_VERSION = 2
"""Version that is written; version 1, of picaset 0.1, had no number."""
PAIRS = "pairs"
"""Key under which a dictionary is saved as a list of pairs, since its keys may be numbers."""
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
TRIAL_SIZE = 5
"""Number of elements of the set for which an estimator predicts when it is loaded."""

Estimator = TypeVar("Estimator", bound="SetNetworkEstimator")


class SetNetworkEstimator(BaseEstimator):
    """Base class of the estimators that train a network on sets of vectors.

    A subclass sets ``_network_class`` and implements ``_fitted_state`` and ``_restore_state``.
    """

    _network_class: ClassVar[type[PretrainedNetwork]]
    network_: Any
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    mean_: Floats
    scale_: Floats
    loss_curve_: list[float]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the fitted estimator to a folder, as JSON and safetensors."""
        check_is_fitted(self)
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        learned = {
            "mean": self.mean_.tolist(), "scale": self.scale_.tolist(), "names": names, **self._fitted_state()
        }  # fmt: skip
        text = describe_estimator(self, learned)
        self._save_networks(create_folder(Path(directory)))
        with atomic_write(Path(directory) / FILE) as unfinished:
            unfinished.write_text(text)

    @classmethod
    def load(cls: type[Estimator], directory: str | os.PathLike[str]) -> Estimator:
        """Load an estimator that ``save`` wrote; executes no code from the folder."""
        path = Path(directory) / FILE
        parameters, learned = read_estimator(path, name=cls.__name__)
        try:
            parameters = cls._upgrade(parameters)
            check_parameters(cls, parameters)
            estimator = cls(**parameters)
            estimator.mean_, estimator.scale_ = (np.array(learned[name]) for name in ("mean", "scale"))
            if estimator.mean_.shape != estimator.scale_.shape or not np.all(estimator.scale_ > 0):
                raise ValueError("mean and scale must have the same length, and scale must be positive")
            estimator.n_features_in_ = len(estimator.mean_)
            if (names := learned.get("names")) is not None:
                if len(names) != estimator.n_features_in_:
                    raise ValueError(f"names must be {estimator.n_features_in_} names; got {len(names)}")
                estimator.feature_names_in_ = np.array(names, dtype=object)
            network_sizes = estimator._restore_state(learned)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            raise ValueError(f"{path} does not fit a {cls.__name__}: {error}.") from None
        estimator._load_networks(Path(directory), learned, network_sizes)
        elements = np.random.default_rng(0).normal(size=(TRIAL_SIZE, estimator.n_features_in_))
        check_usable(estimator, Path(directory), lambda: estimator._predict_trial(elements))
        return estimator

    @classmethod
    def _upgrade(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of an estimator that an earlier version saved as those of this version."""
        return parameters

    def _save_networks(self, directory: Path) -> None:
        self.network_.save_pretrained(directory)

    def _load_networks(self, directory: Path, learned: dict[str, Any], sizes: dict[str, int]) -> None:
        self.network_ = self._network_class.from_pretrained(directory)
        self._check_sizes(self.network_, directory, sizes)

    def _check_sizes(self, network: PretrainedNetwork, directory: Path, sizes: dict[str, int]) -> None:
        """Raise unless a network has the input and output sizes of the estimator."""
        if not sizes.items() <= network.config.items():
            raise ValueError(f"{directory} holds the network of another estimator than {FILE} describes.")

    def _fitted_state(self) -> dict[str, Any]:
        """Return the fitted attributes other than the network, ``mean_`` and ``scale_``, as JSON values."""
        raise NotImplementedError

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        """Set the attributes that ``_fitted_state`` returned; return the input and output sizes of the network."""
        raise NotImplementedError

    def _predict_trial(self, elements: Floats) -> Any:
        """Return the numbers predicted for a set of standardized elements."""
        raise NotImplementedError

    def _fit_standardization(self, rows: Floats) -> None:
        self.n_features_in_ = int(rows.shape[1])
        self.mean_, self.scale_ = mean_and_scale(rows)

    def _standardize(self, arrays: Sequence[Floats]) -> list[Floats]:
        """Standardize sets by ``mean_`` and ``scale_``; raise an error if the result exceeds single precision."""
        standardized = [(array - self.mean_) / self.scale_ for array in arrays]
        for index, values in enumerate(standardized):
            too_large = np.argwhere(np.abs(values) > LARGEST_FLOAT32)
            if len(too_large):
                row, column = too_large[0]
                raise ValueError(
                    f"{type(self).__name__}: numbers must be of the same magnitude as in fit, where column {column} "
                    f"has mean {self.mean_[column]:.4g} and standard deviation {self.scale_[column]:.4g}; set {index} "
                    f"has {arrays[index][row, column]:.4g} in row {row}. Check its units."
                )
        return standardized

    def _read_standardized(self, sets: Sequence[ArrayLike], *, method: str) -> list[Floats]:
        """Validate and standardize the sets passed to a method of the fitted estimator."""
        check_is_fitted(self)
        caller = type(self).__name__
        arrays = read_sets(sets, caller=f"{caller}.{method}")
        if arrays[0].shape[1] != self.n_features_in_:
            raise ValueError(
                f"{caller}: sets must have {self.n_features_in_} columns, as in fit; got {arrays[0].shape[1]}."
            )
        return self._standardize(arrays)


def mean_and_scale(rows: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of each column; the latter is one for constant columns."""
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def split_by_set(values: Floats, sets: Sequence[Floats]) -> list[Floats]:
    """Split one value per element of all sets into one array per set."""
    return np.split(values, np.cumsum([len(elements) for elements in sets])[:-1])


def describe_estimator(estimator: Any, learned: dict[str, Any]) -> str:
    """Return the content of ``estimator.json``."""
    parameters = dict(estimator.get_params(deep=False))
    if not isinstance(parameters["random_state"], int):  # a generator has no JSON form, and only fit uses it
        parameters["random_state"] = None
    for name, value in parameters.items():
        if isinstance(value, dict):
            parameters[name] = {PAIRS: list(cast(dict[Any, Any], value).items())}
    name = type(estimator).__name__
    description = dict(
        format=FORMAT, format_version=FORMAT_VERSION, estimator=name, parameters=parameters, learned=learned
    )
    try:
        return json.dumps(description, default=to_python_number) + "\n"
    except TypeError as error:
        raise ValueError(f"{name}.save: labels must be strings, numbers or booleans: {error}.") from None


def read_estimator(path: Path, *, name: str, schema: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the fitted attributes of the estimator called ``name``.

    ``schema`` is a ``TypedDict`` of the fitted attributes; None is that of the estimators with networks.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; {name}.load reads a folder that {name}.save wrote.")
    description = read_json(path)
    if description.get("format") != FORMAT:
        raise ValueError(f'{path} is not the description of an estimator: "format" must be "{FORMAT}".')
    if (version := description.get("format_version", 1)) not in range(1, FORMAT_VERSION + 1):
        raise ValueError(
            f"{path} has format version {describe_value(version)}; this picaset reads versions 1 to "
            f"{FORMAT_VERSION}. Install the picaset that wrote it."
        )
    if (saved_name := description.get("estimator")) != name:
        saved_class = describe_value(saved_name).strip("'")
        raise ValueError(f"{name}.load: {path} describes a {saved_class}; load it with {saved_class}.load.")
    if not all(isinstance(description.get(part), dict) for part in ("parameters", "learned")):
        raise ValueError(f'{path} must contain the objects "parameters" and "learned"; save the estimator again.')
    parameters = cast(dict[str, Any], description["parameters"])
    learned = read_value(description["learned"], schema or Learned, where=str(path), name="learned")
    for key, value in parameters.items():
        if isinstance(value, dict) and PAIRS in value:
            pairs = read_value(
                cast(Any, value)[PAIRS], list[tuple[str | int | float, float]], where=str(path), name=key
            )
            parameters[key] = dict(cast(list[tuple[Any, Any]], pairs))
    return parameters, learned


class Learned(TypedDict):
    """Fitted attributes in ``estimator.json``; those that a class does not have are absent. All numbers are finite."""

    mean: list[float]
    scale: list[float]
    loss_curve: NotRequired[list[float]]
    validation_curve: NotRequired[list[float]]
    best_epoch: NotRequired[int]
    threshold: NotRequired[float]
    target_mean: NotRequired[list[float]]
    target_scale: NotRequired[list[float]]
    one_number: NotRequired[bool]
    classes: NotRequired[list[str | int | float | bool]]
    dtype: NotRequired[str]
    num_labels: NotRequired[int]
    num_networks: NotRequired[int]
    report: NotRequired[dict[str, Any]]
    per_row: NotRequired[bool]
    fill: NotRequired[list[float] | None]
    names: NotRequired[list[str] | None]
    weights: NotRequired[dict[str, list[float]]]
    offset: NotRequired[float]


def check_finite(predicted: Floats, *, caller: str) -> Floats:
    """Return the predictions; raise an error if any is NaN or infinite."""
    if not np.isfinite(predicted).all():
        raise ValueError(
            f"{caller}: a prediction is NaN or infinite. The sets are too far from those in fit, or the saved weights "
            "were changed."
        )
    return predicted


def check_usable(estimator: Any, directory: Path, predict: Callable[[], Any]) -> None:
    """Raise unless a loaded estimator predicts finite numbers: files may have valid values that do not fit together."""
    name = type(estimator).__name__
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            predicted = np.asarray(predict(), dtype=float)
    except Exception as error:
        reason = f"{type(error).__name__}: {describe_value(str(error))[1:-1]}"
        raise ValueError(
            f"{directory} does not hold a {name} that predicts ({reason}). Fit and save it again."
        ) from None
    if not np.isfinite(predicted).all():
        raise ValueError(f"{directory} holds a {name} that predicts NaN or infinity. Fit and save it again.")


def check_parameters(kind: type, parameters: dict[str, Any]) -> None:
    """Raise an error unless the parameters from a file have the names and types of a constructor."""
    hints, defaults = get_type_hints(kind.__init__), inspect.signature(kind).parameters
    for name, value in parameters.items():
        check_known(name, defaults, where="parameters", label="parameter")
        if value != defaults[name].default:
            read_value(value, hints.get(name, Any), where="parameters", name=name)
            check_magnitude(value, where="parameters", name=name)


def to_python_number(value: Any) -> Any:
    """Convert a NumPy scalar for JSON."""
    if isinstance(value, np.generic):
        return cast(Any, value).item()
    raise TypeError(f"got {value!r}")
