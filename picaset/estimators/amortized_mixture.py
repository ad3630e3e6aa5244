"""Gaussian mixtures of one or many sets of points, with the scikit-learn API."""

import copy
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, cast, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from picaset.checks import check_choice, check_device, check_positive
from picaset.estimators.base import FILE, check_parameters, check_usable, describe_estimator, read_estimator
from picaset.estimators.batched_em import (
    Covariance,
    FitResult,
    Mixtures,
    fit_mixtures,
    is_axis_aligned,
    point_features,
    statistics_of_mixtures,
)
from picaset.estimators.large_mixture import Sample, draw_sample, fit_large_mixture, open_points
from picaset.estimators.missing_values import covariance_matrices, fit_incomplete, impute, joint_log_density
from picaset.estimators.mixture_search import (
    FittedMixture,
    Frame,
    SearchOptions,
    SearchResult,
    box_widths,
    criterion_of,
    find_proposer,
    information_criterion,
    merge_pairs,
    min_component_size,
    num_parameters,
    search_mixtures,
    standardize_columns,
)
from picaset.estimators.validation import (
    BaseEstimator,
    DensityMixin,
    available_device,
    check_above_zero,
    check_is_fitted,
    check_random_state,
    draw_seed,
    read_sets,
    validate_data,
)
from picaset.files import Numbers, atomic_write
from picaset.large.large_set import LargeSet
from picaset.sets import SetBatch, offsets_from_sizes
from picaset.terminal import watch_passes
from picaset.threads import few_threads

Floats = NDArray[np.float64]
Init = Literal["k-means++", "network"]
Missing = Literal["error", "marginalize"]
CovarianceType = Literal["auto", "spherical", "diag", "tied", "full"]


class LearnedMixture(TypedDict):
    """Fitted attributes in ``estimator.json``; all numbers are finite."""

    weights_: list[float]
    means_: list[list[float]]
    covariances_: Numbers
    noise_widths_: list[float]
    noise_weight_: float
    covariance_type_: Covariance
    lower_bound_: float
    n_iter_: int
    converged_: bool
    n_samples_seen_: float
    note_: str


ONE_COLUMN: tuple[Covariance, ...] = ("spherical", "tied")
"""Covariance types that differ if there is one coordinate."""
MANY_STARTS = 16
"""Number of k-means++ starts if there is a single model to fit; several models share fewer."""


class AmortizedMixture(DensityMixin, BaseEstimator):
    """Fit a Gaussian mixture to a set of points, or to thousands of sets at once.

    The number of components and the shape of the covariances are chosen by the Bayesian information criterion (BIC),
    unless they are given. The result is equivariant to shift and scale of every column and does not depend on the order
    of the points. Attributes and methods are those of scikit-learn's ``GaussianMixture``; ``fit_many``, ``fit_stream``,
    ``partial_fit``, noise, sample weights and missing values are additional.

    Args:
        n_components: Number of components, or ``"auto"`` to choose it by the BIC, in which the covariances of a
            component are penalized by the number of its points; see ``docs/clustering.md``.
        covariance_type: ``"spherical"`` (one variance per component), ``"diag"`` (one variance per component and
            coordinate), ``"tied"`` (one matrix), ``"full"`` (one matrix per component), or ``"auto"`` to choose one by
            the BIC.
        noise: Whether to add a uniform background on the bounding box of the points; its points have label -1.
        missing: ``"error"`` raises an error if a value is NaN, ``"marginalize"`` integrates over such values.
        init: ``"k-means++"``, or ``"network"`` to add the proposals of a network trained on simulated mixtures, if
            there is one for this number of coordinates and components.
        n_init: Number of initializations by k-means++; None takes 6, or 16 if both ``n_components`` and
            ``covariance_type`` are given.
        max_components: Largest number of components that ``"auto"`` tries.
        max_iter: Maximum number of steps of expectation-maximization.
        tol: Gain in average log-likelihood per step below which the fit has converged.
        reg_covar: Added to every variance, relative to the variance of the column.
        device: Device on which complete sets are searched for a mixture, such as ``"cuda"``. Sets with missing values,
            ``fit_stream``, ``partial_fit`` and predictions are computed on the CPU.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        weights_: Weights of the components in descending order, (K,); they sum to one minus ``noise_weight_``.
        means_: Means of the components, (K, D).
        covariances_: Covariances: (K,) if spherical, (K, D) if diag, (D, D) if tied, (K, D, D) if full.
        covariance_type_: Covariance type that was used.
        n_components_: Number of components K.
        noise_weight_: Weight of the background, 0 without.
        lower_bound_: Average log-likelihood of the training points.
        n_iter_: Number of steps on all points.
        converged_: Whether the fit converged within ``max_iter`` steps.
        bic_by_components_: With ``n_components="auto"``, the lowest BIC of each number of components that was tried;
            mixtures that have a component with very few points are left out.
        n_components_probabilities_: With ``n_components="auto"``, the probability of each of these numbers that
            follows from the BIC.
        note_: Warning about this fit, or an empty string.
        n_samples_seen_: Total weight of the points.
        n_features_in_: Number of coordinates D.

    Example:
        >>> points = np.concatenate([np.random.randn(200, 2), np.random.randn(100, 2) + [10, 0]])
        >>> mixture = AmortizedMixture(n_components=2, random_state=0).fit(points)
        >>> mixture.predict([[0, 0], [10, 0]])
        array([0, 1])
        >>> mixtures = AmortizedMixture(random_state=0).fit_many([points, points[:150]])
        >>> [mixture.n_components_ for mixture in mixtures]
        [2, 1]
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        covariance_type: CovarianceType = "auto",
        noise: bool = False,
        missing: Missing = "error",
        init: Init = "k-means++",
        n_init: int | None = None,
        max_components: int = 8,
        max_iter: int = 100,
        tol: float = 3e-4,
        reg_covar: float = 1e-6,
        device: Any = "cpu",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.noise = noise
        self.missing = missing
        self.init = init
        self.n_init = n_init
        self.max_components = max_components
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = DensityMixin.__sklearn_tags__(self)
        tags.input_tags.allow_nan = self.missing == "marginalize"
        return tags

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> "AmortizedMixture":
        """Fit the mixture to one set of points, (N, D), with weights (N,); ``y`` is ignored."""
        points = self._read(X, reset=True)
        options = self._options(points.shape[1])
        weights = None if sample_weight is None else [sample_weight]
        self._set_from_search(self._search([points], weights, options)[0], options, *point_counts(points, weights, 0))
        if self.note_:
            warnings.warn(self.note_, stacklevel=2)
        return self

    def fit_many(
        self, sets: Sequence[ArrayLike], sample_weight: Sequence[ArrayLike] | None = None
    ) -> "list[AmortizedMixture]":
        """Fit a mixture to each set, (n, D), where n may differ; return new fitted estimators, leave this unfitted."""
        arrays = read_sets(sets, caller="AmortizedMixture.fit_many", allow_nan=self.missing == "marginalize")
        options = self._options(arrays[0].shape[1])
        mixtures = list[AmortizedMixture]()
        for index, result in enumerate(self._search(arrays, sample_weight, options)):
            mixture = type(self)(**self.get_params(deep=False))
            mixture.n_features_in_ = int(arrays[index].shape[1])
            mixture._set_from_search(result, options, *point_counts(arrays[index], sample_weight, index))
            mixtures.append(mixture)
        if noted := [index for index, mixture in enumerate(mixtures) if mixture.note_]:
            first = f"Set {noted[0]}: {mixtures[noted[0]].note_}"
            others = f" {len(noted) - 1} more {'sets have' if len(noted) > 2 else 'set has'} notes; see note_."
            others = others if len(noted) > 1 else ""
            warnings.warn(first + others, stacklevel=2)
        return mixtures

    def fit_stream(self, source: Any, *, chunk: int | None = None, progress: bool = False) -> "AmortizedMixture":
        """Fit the mixture to one set of any size, which is read in chunks.

        A sample of the points determines the number of components, the covariance type and the initial mixture; every
        step of expectation-maximization from there is one pass over all points.

        Args:
            source: An array (N, D), the path of a .npy, .safetensors or .parquet file, or a function that returns a
                new iterator of chunks (n, D) at every call: any source of :func:`picaset.stream`.
            chunk: Number of points in memory at a time.
            progress: Whether to show a progress bar for each pass.
        """
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        with watch_passes(progress) as watcher:
            large = open_points(source, chunk=chunk, watcher=watcher)
            sample = draw_sample(large, generator)
            self.fit(sample.points.numpy())
            if sample.total > len(sample.points):
                self._refine(large, sample)
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> "AmortizedMixture":
        """Update the mixture with further points; the points seen before count through their sufficient statistics.

        The first call is ``fit``; later ones keep the number of components and the covariance type.
        """
        if not hasattr(self, "means_"):
            return self.fit(X, sample_weight=sample_weight)
        points = self._read(X, reset=False)
        if np.isnan(points).any():
            raise ValueError("AmortizedMixture.partial_fit: missing values can be marginalized in fit only.")
        weights = read_weights(sample_weight, len(points), index=0)
        frame = self._frame()
        start = self._standardized(frame)
        scales = frame.scale[:, 0].square() / frame.scale.square().mean()
        rows = (torch.tensor(points)[None] - frame.shift) / frame.scale
        features = point_features(
            rows, torch.as_tensor(weights)[None], covariance=self.covariance_type_, relative_scales=scales,
            log_background=-(torch.as_tensor(self.noise_widths_) / frame.scale[0, 0]).log().sum()[None],
        )  # fmt: skip
        prior = self.n_samples_seen_ * statistics_of_mixtures(start, self.covariance_type_, min_variance=self.reg_covar)
        with torch.inference_mode(), few_threads(points.size * self.n_components_):
            fit = fit_mixtures(
                features, start, self.covariance_type_,
                max_steps=self.max_iter, min_variance=self.reg_covar, tol=self.tol, prior=prior,
            )  # fmt: skip
        self._set_fit(fit, frame)
        self.n_samples_seen_ += float(weights.sum())
        return self

    def fit_predict(self, X: ArrayLike, y: Any = None) -> NDArray[np.int64]:
        """Fit the mixture, and return the most likely component of every point."""
        return self.fit(X).predict(X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most likely component of every point, (N,); -1 is noise."""
        labels = self._joint_log_density(X).argmax(dim=1).numpy()
        return np.where(labels == self.n_components_, -1, labels)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the responsibilities of the components for every point, (N, K).

        With noise, the remaining probability of a row is that of noise.
        """
        return self._joint_log_density(X).softmax(dim=1)[:, : self.n_components_].numpy()

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log-density at every point, (N,); of its observed coordinates, if some are missing."""
        return self._joint_log_density(X).logsumexp(dim=1).numpy()

    def score(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the average log-likelihood of the points."""
        log_densities = self.score_samples(X)
        return float(np.average(log_densities, weights=read_weights(sample_weight, len(log_densities), index=0)))

    def sample(self, n_samples: int = 1) -> tuple[Floats, NDArray[np.int64]]:
        """Draw points from the components, (n_samples, D), without noise; also return the component of each."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"AmortizedMixture.sample: n_samples must be at least 1; got {n_samples}.")
        random = check_random_state(self.random_state)
        counts = random.multinomial(n_samples, self.weights_ / self.weights_.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        factors = np.linalg.cholesky(self.covariance_matrices())[labels]
        noise = random.standard_normal((n_samples, self.means_.shape[1]))
        return self.means_[labels] + np.einsum("nij,nj->ni", factors, noise), labels

    def bic(self, X: ArrayLike) -> float:
        """Return the Bayesian information criterion; lower is better."""
        log_densities = self.score_samples(X)
        return information_criterion(log_densities.sum(), self._num_parameters(), math.log(len(log_densities)))

    def aic(self, X: ArrayLike) -> float:
        """Return the Akaike information criterion; lower is better."""
        return information_criterion(self.score_samples(X).sum(), self._num_parameters(), 2.0)

    def covariance_matrices(self) -> Floats:
        """Return ``covariances_`` as one matrix per component, (K, D, D), for any covariance type."""
        check_is_fitted(self)
        matrices = covariance_matrices(self._covariance_tensor(), self.covariance_type_, self.n_components_)
        return matrices.numpy()

    def variances_by_coordinate(self) -> Floats:
        """Return one variance per component and coordinate, (K, D), for any covariance type."""
        check_is_fitted(self)
        covariances = self._covariance_tensor()
        if not is_axis_aligned(self.covariance_type_):
            covariances = covariances.diagonal(dim1=1, dim2=2)
        return np.broadcast_to(covariances.numpy(), self.means_.shape)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the fitted estimator to a folder, as JSON."""
        check_is_fitted(self)
        learned = {name: getattr(self, name) for name in LearnedMixture.__required_keys__}
        learned = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in learned.items()}
        if hasattr(self, "bic_by_components_"):
            learned["bic_by_components_"] = list(self.bic_by_components_.items())
        text = describe_estimator(self, learned)
        Path(directory).mkdir(parents=True, exist_ok=True)
        with atomic_write(Path(directory) / FILE) as unfinished:
            unfinished.write_text(text)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "AmortizedMixture":
        """Load an estimator that ``save`` wrote; executes no code from the folder."""
        path = Path(directory) / FILE
        parameters, learned = read_estimator(path, name=cls.__name__, schema=LearnedMixture)
        try:
            check_parameters(cls, parameters)
            mixture = cls(**parameters)
            mixture.device = available_device(mixture.device)
            for name in LearnedMixture.__required_keys__:
                value = learned[name]
                setattr(mixture, name, np.array(value, dtype=float) if isinstance(value, list) else value)
            if "bic_by_components_" in learned:
                mixture._set_criterion(dict(learned["bic_by_components_"]))
            mixture.n_components_, mixture.n_features_in_ = mixture.means_.shape
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path} does not fit a {cls.__name__}: {error}.") from None
        check_usable(mixture, Path(directory), lambda: [mixture.score_samples(mixture.means_), mixture.weights_])
        return mixture

    def _options(self, num_columns: int) -> SearchOptions:
        """Validate the parameters, and return the options of the search."""
        caller = type(self).__name__
        check_choice(self.covariance_type, get_args(CovarianceType), caller=caller, name="covariance_type")
        check_choice(self.init, get_args(Init), caller=caller, name="init")
        check_choice(self.missing, get_args(Missing), caller=caller, name="missing")
        if not isinstance(cast(object, self.noise), bool | np.bool):
            raise ValueError(f"{caller}: noise must be True or False; got {self.noise!r}.")
        check_positive(caller=caller, max_iter=self.max_iter, max_components=self.max_components)
        if self.n_init is not None:
            check_positive(caller=caller, n_init=self.n_init)
        check_above_zero(caller=caller, tol=self.tol, reg_covar=self.reg_covar)
        check_device(self.device, caller=caller)
        if self.n_components == "auto":
            counts = tuple(range(1, self.max_components + 1))
        else:
            if isinstance(self.n_components, bool) or not isinstance(self.n_components, int | np.integer):
                raise ValueError(f"{caller}: n_components must be an integer or 'auto'; got {self.n_components!r}.")
            check_positive(caller=caller, n_components=int(self.n_components))
            counts = (int(self.n_components),)
        covariances: tuple[Covariance, ...] = ONE_COLUMN if num_columns == 1 else get_args(Covariance)
        if self.covariance_type != "auto":
            covariances = (cast(Covariance, self.covariance_type),)
        single = len(counts) * len(covariances) == 1
        options = SearchOptions(
            covariances=covariances,
            component_counts=counts,
            noise=bool(self.noise),
            max_steps=self.max_iter,
            tol=self.tol,
            min_variance=self.reg_covar,
        )
        return replace(options, num_starts=self.n_init or (MANY_STARTS if single else options.num_starts))

    def _search(
        self, arrays: list[Floats], sample_weight: Sequence[ArrayLike] | None, options: SearchOptions
    ) -> list[SearchResult]:
        """Search for the best mixtures of every set."""
        if sample_weight is not None and len(sample_weight) != len(arrays):
            raise ValueError(
                f"AmortizedMixture: sample_weight must have one array for each of the {len(arrays)} sets; got "
                f"{len(sample_weight)}."
            )
        sets, weights = list[Floats](), list[Floats]()
        for index, points in enumerate(arrays):
            point_weights = read_weights(
                None if sample_weight is None else sample_weight[index], len(points), index=index
            )
            # Rows without a weight or without any value carry no information; the order of the others must not matter.
            is_used = (point_weights > 0) & ~np.isnan(points).all(axis=1)
            if not is_used.any():
                raise ValueError(f"AmortizedMixture: all values of set {index} are missing.")
            points, point_weights = points[is_used], point_weights[is_used]
            order = np.lexsort(points.T[::-1])
            sets.append(points[order])
            weights.append(point_weights[order])
        if self.init == "network" and max(options.component_counts) > 1:
            proposer = find_proposer(dim_in=arrays[0].shape[1], num_components=max(options.component_counts))
            if proposer is not None and torch.device(self.device).type != "cpu":
                proposer = copy.deepcopy(proposer).to(self.device)  # the loaded one is shared
            options = replace(options, proposer=proposer)
        seed = draw_seed(self.random_state)
        results = dict[int, SearchResult]()
        largest = max(map(len, sets)) * max(options.component_counts)
        with few_threads(largest):
            incomplete = {index for index, points in enumerate(sets) if np.isnan(points).any()}
            for index in incomplete:
                results[index] = search_incomplete(sets[index], weights[index], options, seed)
            # A set cannot have more components than points.
            sizes = [min(len(points), max(options.component_counts)) for points in sets]
            for size in set(sizes):
                members = [index for index in range(len(sets)) if sizes[index] == size and index not in incomplete]
                if members:
                    size_options = with_at_most(options, size)
                    found = search_arrays(sets, weights, members, size_options, seed, device=self.device)
                    results |= zip(members, found, strict=True)
        ordered = [results[index] for index in range(len(sets))]
        for index, result in enumerate(ordered):
            best = result.candidates[0]
            if not (
                bool(best.covariances.isfinite().all() and (best.covariances != 0).any())
                and math.isfinite(best.log_likelihood)
            ):
                raise ValueError(
                    f"AmortizedMixture: the points of set {index} are too far apart, or too close, for double "
                    "precision; scale them first."
                )
        return ordered

    def _set_from_search(self, result: SearchResult, options: SearchOptions, points: Floats, total: float) -> None:
        """Set the fitted attributes to the best mixture of one set."""
        size, requested = len(points), options.component_counts
        self.noise_widths_ = widths_of(points)
        self.n_samples_seen_ = total
        self._set_mixture(result.candidates[0])
        self.note_ = ""
        if self.n_components == "auto":
            self._set_criterion(result.criterion_by_count)
            if size < min_component_size(points.shape[1]):
                self.note_ = (
                    f"The set has {size} point{'s' * (size > 1)}, fewer than its {points.shape[1]} "
                    f"column{'s' * (points.shape[1] > 1)} plus two, and gets {self.n_components_} "
                    f"component{'s' * (self.n_components_ > 1)}; so few points say little about clusters."
                )
            elif self.n_components_ == requested[-1] > 1:
                self.note_ = (
                    f"{self.n_components_} components is the largest number that was tried; the points may have more. "
                    "Increase max_components."
                )
        elif self.n_components_ < requested[0]:
            self.note_ = (
                f"The set has {size} point{'s' * (size > 1)}, fewer than n_components = {requested[0]}, and gets "
                f"{self.n_components_} component{'s' * (self.n_components_ > 1)}."
            )

    def _set_criterion(self, criterion: dict[int, float]) -> None:
        self.bic_by_components_ = criterion
        lowest = min(criterion.values())
        evidence = {count: math.exp(-0.5 * (value - lowest)) for count, value in criterion.items()}
        self.n_components_probabilities_ = {count: value / sum(evidence.values()) for count, value in evidence.items()}

    def _refine(self, large: LargeSet, sample: Sample) -> None:
        """Continue on all points of a large set from the mixture of a sample."""
        self.noise_widths_ = box_widths(sample.box).numpy()
        sets, frame = standardize_columns(sample.points[None], torch.ones_like(sample.points[None, :, 0]))
        widths = torch.as_tensor(self.noise_widths_) / frame.scale[0]
        fit = fit_large_mixture(
            large, self._standardized(frame), self.covariance_type_,
            sets._replace(log_background=-widths.log().sum(dim=1)), frame,
            max_steps=self.max_iter, min_variance=self.reg_covar, tol=self.tol, count=sample.total,
        )  # fmt: skip
        self._set_fit(fit, frame)
        self.n_samples_seen_ = float(sample.total)

    def _set_fit(self, fit: FitResult, frame: Frame) -> None:
        self._set_mixture(FittedMixture.of(fit, 0, self.covariance_type_).in_units(frame.shift[0], frame.scale[0]))

    def _set_mixture(self, mixture: FittedMixture) -> None:
        """Set the parameters of the mixture, in descending order of the weights."""
        weights = mixture.log_weights.exp().numpy()
        weights, count = weights / weights.sum(), len(mixture.means)
        order = np.argsort(-weights[:count], kind="stable")
        self.covariance_type_: Covariance = mixture.covariance
        self.n_components_ = count
        self.weights_: Floats = weights[:count][order]
        self.noise_weight_ = float(weights[count:].sum())
        self.means_: Floats = mixture.means.numpy()[order]
        covariances = mixture.covariances.numpy()
        self.covariances_: Floats = covariances[0] if mixture.covariance == "tied" else covariances[order]
        if mixture.covariance == "spherical":
            self.covariances_ = self.covariances_.mean(axis=1)
        self.lower_bound_, self.n_iter_, self.converged_ = mixture.log_likelihood, mixture.steps, mixture.converged

    def _covariance_tensor(self) -> Tensor:
        """Return the covariances as in :class:`FittedMixture`."""
        covariances = torch.as_tensor(self.covariances_)
        if self.covariance_type_ == "spherical":
            return covariances[:, None].expand(self.means_.shape)
        return covariances[None] if self.covariance_type_ == "tied" else covariances

    def _log_weights(self) -> Tensor:
        weights = [*self.weights_, self.noise_weight_] if self.noise else self.weights_
        return torch.as_tensor(np.array(weights)).log()

    def _frame(self) -> Frame:
        """Return the mean and the standard deviation of the mixture."""
        shares = self.weights_[:, None] / self.weights_.sum()
        mean = (shares * self.means_).sum(axis=0)
        variance = (shares * (self.variances_by_coordinate() + (self.means_ - mean) ** 2)).sum(axis=0)
        return Frame(torch.as_tensor(mean)[None, None], torch.as_tensor(np.sqrt(variance))[None, None])

    def _standardized(self, frame: Frame) -> Mixtures:
        """Return the mixture in the standardized coordinates of a frame."""
        scale = frame.scale[0]
        square = scale.square() if is_axis_aligned(self.covariance_type_) else scale.T * scale
        means = (torch.as_tensor(self.means_) - frame.shift[0]) / scale
        parts = (means, self._covariance_tensor() / square, self._log_weights())
        return Mixtures(*(part[None, None] for part in parts))

    def _joint_log_density(self, X: ArrayLike) -> Tensor:
        """Return the log of the joint density of every point and component, (N, K) or (N, K + 1) with noise."""
        check_is_fitted(self)
        points = torch.tensor(self._read(X, reset=False))  # a copy, because X may be read-only
        log_weights, widths = self._log_weights(), torch.as_tensor(self.noise_widths_)
        with few_threads(points.numel() * self.n_components_):
            if not is_axis_aligned(self.covariance_type_):
                matrices = torch.as_tensor(self.covariance_matrices())
                own_widths = widths if self.noise else None
                return joint_log_density(points, torch.as_tensor(self.means_), matrices, log_weights, own_widths)
            # One component at a time needs memory for one difference per point and coordinate, not for K.
            variances = torch.as_tensor(self.variances_by_coordinate().copy())
            joint = [
                -0.5 * ((points - mean).square() / variance + (2 * math.pi * variance).log()).nansum(dim=1)
                for mean, variance in zip(torch.as_tensor(self.means_), variances, strict=True)
            ]
            if self.noise:
                joint.append(-widths.log().masked_fill(points.isnan(), 0.0).sum(dim=1))
            return torch.stack(joint, dim=1) + log_weights

    def _read(self, X: ArrayLike, *, reset: bool) -> Floats:
        """Validate one set of points."""
        points: Floats = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=reset)
        invalid = np.isinf(points) if self.missing == "marginalize" else ~np.isfinite(points)
        if invalid.any():
            row, column = np.argwhere(invalid)[0]
            value = points[row, column]
            hint = "fill it in, drop the row, or pass missing='marginalize'" if np.isnan(value) else "correct it"
            name = "NaN" if np.isnan(value) else f"{value:g} (infinity)"
            raise ValueError(
                f"AmortizedMixture: X must be finite; got {name} in row {row}, column {column}. {hint.capitalize()}."
            )
        return points

    def _num_parameters(self) -> int:
        model = (self.covariance_type_, self.n_components_)
        return num_parameters(model, self.means_.shape[1], noise=bool(self.noise))


def read_weights(sample_weight: ArrayLike | None, size: int, *, index: int) -> Floats:
    """Validate the weights of the points of one set; None is one for each."""
    if sample_weight is None:
        return np.ones(size)
    weights = np.asarray(sample_weight, dtype=np.float64)
    weights = np.full(size, float(weights)) if weights.ndim == 0 else weights
    if weights.shape != (size,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError(
            f"AmortizedMixture: sample_weight of set {index} must have shape ({size},) and hold finite numbers of at "
            f"least 0, not all zero; got shape {weights.shape} with minimum {np.min(weights, initial=np.inf):g}."
        )
    return weights


def point_counts(points: Floats, sample_weight: Sequence[ArrayLike] | None, index: int) -> tuple[Floats, float]:
    """Return the points of one set that have a weight, and their total weight."""
    if sample_weight is None:
        return points, float(len(points))
    weights = read_weights(sample_weight[index], len(points), index=index)
    return points[weights > 0], float(weights.sum())


def widths_of(points: Floats) -> Floats:
    """Return the width of each column, ignoring missing values; 1 for a constant column."""
    widths = np.fmax.reduce(points, axis=0) - np.fmin.reduce(points, axis=0)
    return np.where(widths > 0, widths, 1.0)


def with_at_most(options: SearchOptions, size: int) -> SearchOptions:
    """Return options for sets of ``size`` points: larger numbers of components become ``size``."""
    counts = {min(count, size) for count in options.component_counts}
    return replace(options, component_counts=tuple(sorted(counts)))


def search_arrays(
    sets: list[Floats],
    weights: list[Floats],
    members: list[int],
    options: SearchOptions,
    seed: int,
    *,
    device: Any = "cpu",
) -> list[SearchResult]:
    """Search for the best mixtures of some of the sets on a device."""
    sizes = torch.tensor([len(sets[index]) for index in members], device=device)
    points = torch.as_tensor(np.concatenate([sets[index] for index in members]), device=device)
    point_weights = torch.as_tensor(np.concatenate([weights[index] for index in members]), device=device)
    generator = torch.Generator().manual_seed(seed)
    batch = SetBatch(points, offsets_from_sizes(sizes))
    return [result.on_cpu() for result in search_mixtures(batch, point_weights, options, generator=generator)]


def search_incomplete(points: Floats, weights: Floats, options: SearchOptions, seed: int) -> SearchResult:
    """Search for the mixture of one set with missing values.

    Candidates come from the complete rows if they are at least half of all, otherwise from imputed values; each is
    fitted to all rows.
    """
    observed = ~np.isnan(points)
    if not observed.any(axis=0).all():
        column = int(observed.any(axis=0).argmin())
        raise ValueError(f"AmortizedMixture: all values of column {column} are missing; leave the column out.")
    shift = np.nanmean(points, axis=0)
    deviation = np.nanstd(points - shift, axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    standardized, own_weights = torch.as_tensor((points - shift) / scale), torch.as_tensor(weights)
    rows = np.flatnonzero(observed.all(axis=1))
    if 2 * len(rows) >= len(points):
        complete, complete_weights = standardized.numpy()[rows], weights[rows]
    else:
        complete, complete_weights = impute(standardized, own_weights).numpy(), weights
    options = with_at_most(options, len(complete))
    (complete_result,) = search_arrays(
        [complete], [complete_weights], [0], replace(options, num_fits=2 * options.num_fits), seed
    )
    frame = Frame(torch.as_tensor(shift)[None], torch.as_tensor(scale)[None])
    relative_scales = frame.scale.square() / frame.scale.square().mean()
    widths = torch.as_tensor(widths_of(points) / scale) if options.noise else None
    result = SearchResult([], {})

    def fit(mixtures: Mixtures, covariance: Covariance, *, max_steps: int) -> FittedMixture:
        fit_result = fit_incomplete(
            standardized, own_weights, mixtures, covariance, relative_scales, widths,
            max_steps=max_steps, min_variance=options.min_variance, tol=options.tol,
        )  # fmt: skip
        model = (covariance, mixtures.means.shape[2])
        criterion = criterion_of(
            fit_result.log_likelihood, fit_result.mixtures, model, own_weights.sum()[None], options
        )
        return FittedMixture.of(fit_result, 0, covariance, float(criterion))

    starts: list[tuple[Mixtures, Covariance]] = []
    for start in complete_result.candidates:
        mixtures = start.as_mixtures()
        if start.covariance == "spherical":  # round in the units of the data, not after standardization
            mean = (mixtures.covariances * relative_scales).mean(dim=-1, keepdim=True)
            mixtures = mixtures._replace(covariances=mean / relative_scales)
        starts.append((mixtures, start.covariance))
    while starts:
        before = result.best_criterion
        for mixtures, kind in starts:
            result.candidates.append(fit(mixtures, kind, max_steps=options.max_steps))
            result.add_criterion(mixtures.means.shape[2], result.candidates[-1].criterion)
        result.candidates.sort(key=lambda mixture: mixture.criterion)
        best, starts = result.candidates[0], []
        if best.criterion < before and len(best.means) - 1 in options.component_counts:
            merged = merge_pairs(
                best.as_mixtures(), best.covariance, relative_scales, min_variance=options.min_variance
            )
            pairs = [Mixtures(*(part[:, [i]] for part in merged)) for i in range(merged.means.shape[1])]
            short = [fit(pair, best.covariance, max_steps=1) for pair in pairs]
            lowest = min(short, key=lambda mixture: mixture.criterion)
            starts = [(lowest.as_mixtures(), best.covariance)]
    log_volume = float(np.average(observed @ np.log(scale), weights=weights))
    return result.in_units(frame.shift, frame.scale, log_volume, float(weights.sum()))
