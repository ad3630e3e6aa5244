"""Gaussian mixtures of one or many sets of points, with the scikit-learn API."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from picaset.checks import check_choice, check_positive
from picaset.estimators.batched_em import Mixtures
from picaset.estimators.large_mixture import draw_sample, fit_large_mixture, open_points
from picaset.estimators.mixture_search import (
    SearchOptions,
    SearchResult,
    find_proposer,
    information_criterion,
    min_component_size,
    search_mixtures,
)
from picaset.estimators.validation import (
    BaseEstimator,
    DensityMixin,
    check_above_zero,
    check_is_fitted,
    check_random_state,
    draw_seed,
    read_sets,
    validate_data,
)
from picaset.large.large_set import LargeSet
from picaset.operators.canonicalize import standardize
from picaset.operators.mixture import Mixture, joint_log_density
from picaset.progress import watch_passes
from picaset.sets import SetBatch, offsets_from_sizes

Floats = NDArray[np.float64]
Init = Literal["network", "k-means++"]
CovarianceType = Literal["spherical", "diag"]


class AmortizedMixture(DensityMixin, BaseEstimator):
    """Fit a Gaussian mixture to a set of points, or to thousands of sets at once.

    A network trained on simulated mixtures proposes initial mixtures, and expectation-maximization refines them. The
    likelihood is as high as that of scikit-learn's ``GaussianMixture`` with ten initializations, in a fraction of its
    time. The result is equivariant to shift and scale of the points. Attributes and methods are those of
    ``GaussianMixture``; ``fit_many`` and ``fit_stream`` are additional.

    Args:
        n_components: Number of components, or ``"auto"`` to choose it by the Bayesian information criterion (BIC).
        covariance_type: ``"spherical"`` (one variance per component) or ``"diag"`` (one variance per component and
            coordinate).
        init: ``"network"`` initializes by a network and by k-means++, ``"k-means++"`` by k-means++ alone, which works
            in any number of dimensions.
        n_init: Number of initializations by k-means++; None takes the number of components. Small sets get more.
        max_components: Largest number of components that ``"auto"`` tries.
        max_iter: Maximum number of steps of expectation-maximization.
        tol: Gain in average log-likelihood per step below which the fit has converged.
        reg_covar: Smallest variance of a component, relative to the variance of the points.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        weights_: Weights of the components in descending order, (K,).
        means_: Means of the components, (K, D).
        covariances_: Variances of the components, (K,) if spherical, (K, D) if diagonal.
        n_components_: Number of components K.
        lower_bound_: Average log-likelihood of the training points.
        n_iter_: Number of steps on all points.
        converged_: Whether the fit converged within ``max_iter`` steps.
        bic_by_components_: With ``"auto"``, the BIC of each number of components, of which the lowest was chosen;
            mixtures that have a component with very few points are left out.
        n_features_in_: Number of coordinates D.

    Example:
        >>> points = np.concatenate([np.random.randn(200, 2), np.random.randn(100, 2) + [10, 0]])
        >>> mixture = AmortizedMixture(n_components=2, random_state=0).fit(points)
        >>> mixture.predict([[0, 0], [10, 0]])
        array([0, 1])
        >>> mixtures = AmortizedMixture(n_components="auto", random_state=0).fit_many([points, points[:150]])
        >>> [mixture.n_components_ for mixture in mixtures]
        [2, 1]
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: int | Literal["auto"] = 4,
        *,
        covariance_type: CovarianceType = "spherical",
        init: Init = "network",
        n_init: int | None = None,
        max_components: int = 8,
        max_iter: int = 100,
        tol: float = 3e-4,
        reg_covar: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.init = init
        self.n_init = n_init
        self.max_components = max_components
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> "AmortizedMixture":
        """Fit the mixture to one set of points, (N, D); ``y`` is ignored."""
        points: Floats = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        component_counts = self._component_counts()
        self._set_from_search(self._search([points], component_counts), 0, len(points), component_counts)
        return self

    def fit_many(self, sets: Sequence[ArrayLike]) -> "list[AmortizedMixture]":
        """Fit a mixture to each set, (n, D), where n may differ; return new fitted estimators, leave this unfitted."""
        arrays = read_sets(sets, caller="AmortizedMixture.fit_many")
        component_counts = self._component_counts()
        result = self._search(arrays, component_counts)
        mixtures = list[AmortizedMixture]()
        for index, points in enumerate(arrays):
            mixture = type(self)(**self.get_params(deep=False))
            mixture.n_features_in_ = int(points.shape[1])
            mixture._set_from_search(result, index, len(points), component_counts)
            mixtures.append(mixture)
        return mixtures

    def fit_stream(self, source: Any, *, chunk: int | None = None, progress: bool = False) -> "AmortizedMixture":
        """Fit the mixture to one set of any size, which is read in chunks.

        A sample of the points determines the number of components and the initial mixture; every step of
        expectation-maximization from there is one pass over all points.

        Args:
            source: An array (N, D), the path of a .npy, .safetensors or .parquet file, or a function that returns a
                new iterator of chunks (n, D) at every call: any source of :func:`picaset.stream`.
            chunk: Number of points in memory at a time.
            progress: Whether to show a progress bar for each pass.
        """
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        with watch_passes(progress) as watcher:
            large = open_points(source, chunk=chunk, watcher=watcher)
            sample, count = draw_sample(large, generator)
            self.fit(sample.numpy())
            if count > len(sample):
                self._refine(large, sample, count)
        return self

    def fit_predict(self, X: ArrayLike, y: Any = None) -> NDArray[np.int64]:
        """Fit the mixture, and return the most likely component of every point."""
        return self.fit(X).predict(X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most likely component of every point, (N,)."""
        return self._joint_log_density(X).numpy().argmax(axis=1)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the responsibilities of the components for every point, (N, K)."""
        return self._joint_log_density(X).softmax(dim=1).numpy()

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log-density at every point, (N,)."""
        return self._joint_log_density(X).logsumexp(dim=1).numpy()

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the average log-likelihood of the points."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[Floats, NDArray[np.int64]]:
        """Draw points from the mixture, (n_samples, D); also return the component of each."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"AmortizedMixture.sample: n_samples must be at least 1; got {n_samples}.")
        random = check_random_state(self.random_state)
        counts = random.multinomial(n_samples, self.weights_ / self.weights_.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        deviations = np.sqrt(self.variances_by_coordinate())[labels]
        return self.means_[labels] + deviations * random.standard_normal((n_samples, self.means_.shape[1])), labels

    def bic(self, X: ArrayLike) -> float:
        """Return the Bayesian information criterion; lower is better."""
        log_densities = self.score_samples(X)
        num_parameters = self._num_parameters(*self.means_.shape)
        return information_criterion(log_densities.sum(), num_parameters, math.log(len(log_densities)))

    def aic(self, X: ArrayLike) -> float:
        """Return the Akaike information criterion; lower is better."""
        return information_criterion(self.score_samples(X).sum(), self._num_parameters(*self.means_.shape), 2.0)

    def variances_by_coordinate(self) -> Floats:
        """Return ``covariances_`` as one variance per component and coordinate, (K, D), for any covariance type."""
        check_is_fitted(self)
        variances = self.covariances_[:, None] if self.covariance_type == "spherical" else self.covariances_
        return np.broadcast_to(variances, self.means_.shape)

    def _component_counts(self) -> list[int]:
        """Validate the parameters, and return the numbers of components to try."""
        caller = type(self).__name__
        check_choice(self.covariance_type, get_args(CovarianceType), caller=caller, name="covariance_type")
        check_choice(self.init, get_args(Init), caller=caller, name="init")
        check_positive(caller=caller, max_iter=self.max_iter, max_components=self.max_components)
        fewest = 0 if self.init == "network" else 1
        if self.n_init is not None and self.n_init < fewest:
            raise ValueError(f"{caller}: n_init must be at least {fewest}; got {self.n_init}.")
        check_above_zero(caller=caller, tol=self.tol, reg_covar=self.reg_covar)
        if self.n_components == "auto":
            return list(range(1, self.max_components + 1))
        if isinstance(self.n_components, str):
            raise ValueError(f"{caller}: n_components must be an integer or 'auto'; got {self.n_components!r}.")
        check_positive(caller=caller, n_components=int(self.n_components))
        return [int(self.n_components)]

    def _search(self, arrays: list[Floats], component_counts: list[int]) -> SearchResult:
        """Search for the best mixture of every set with each number of components."""
        sizes, dim = [len(points) for points in arrays], arrays[0].shape[1]
        if min(sizes) < max(component_counts[0], 2):
            raise ValueError(
                f"AmortizedMixture: n_components = {component_counts[0]} needs at least "
                f"{max(component_counts[0], 2)} points; got n_samples = {min(sizes)} in set {sizes.index(min(sizes))}."
            )
        proposer = None
        if self.init == "network" and max(component_counts) > 1:
            proposer = find_proposer(dim_in=dim, num_components=max(component_counts))
        options = SearchOptions(
            proposer=proposer,
            num_kmeans=self.n_init,
            max_steps=self.max_iter,
            tol=self.tol,
            min_variance=self.reg_covar,
            min_points=min_component_size(dim) if self.n_components == "auto" else 0,
            diagonal=self.covariance_type == "diag",
        )
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        batch = SetBatch(torch.as_tensor(np.concatenate(arrays)), offsets_from_sizes(torch.tensor(sizes)))
        result = search_mixtures(batch, component_counts, options, generator=generator)
        failed = ~(result.log_likelihood.isfinite().all(dim=1) & result.variances.isfinite().all(dim=(1, 2, 3)))
        if bool(failed.any()):
            raise ValueError(
                f"AmortizedMixture: the points of set {int(failed.nonzero()[0])} are too far apart, or too close, for "
                "double precision; scale them first."
            )
        return result

    def _set_from_search(self, result: SearchResult, index: int, size: int, component_counts: list[int]) -> None:
        """Set the fitted attributes to the mixture of one set, which has ``size`` points."""
        choice, dim = 0, result.means.shape[3]
        if self.n_components == "auto":
            likelihoods = (result.log_likelihood[index].double().numpy() * size).tolist()
            self.bic_by_components_ = {
                count: information_criterion(likelihood, self._num_parameters(count, dim), math.log(size))
                for count, likelihood, log_weights in zip(
                    component_counts, likelihoods, result.log_weights[index], strict=True
                )
                if count == 1 or float(log_weights[:count].exp().min()) * size >= min_component_size(dim)
            }
            choice = component_counts.index(min(self.bic_by_components_, key=self.bic_by_components_.__getitem__))
        self.n_components_ = component_counts[choice]
        present = slice(0, self.n_components_)
        parts = (result.means, result.variances, result.log_weights)
        self._set_parameters(*(part[index, choice, present] for part in parts))
        self.lower_bound_ = float(result.log_likelihood[index, choice])
        self.n_iter_ = int(result.steps[index])
        self.converged_ = bool(result.converged[index])

    def _refine(self, large: LargeSet, sample: Tensor, count: int) -> None:
        """Continue on all points of a large set from the mixture of a sample."""
        variances = torch.as_tensor(self.covariances_).reshape(self.n_components_, -1)
        parts = (torch.as_tensor(self.means_), variances, torch.as_tensor(self.weights_).log())
        fit = fit_large_mixture(
            large, Mixtures(*(part[None, None] for part in parts)), standardize(sample[None], None)[1],
            max_steps=self.max_iter, min_variance=self.reg_covar, tol=self.tol, count=count,
        )  # fmt: skip
        self._set_parameters(*(part[0, 0] for part in fit.mixture))
        self.lower_bound_, self.n_iter_, self.converged_ = fit.log_likelihood, fit.steps, fit.converged

    def _set_parameters(self, means: Tensor, variances: Tensor, log_weights: Tensor) -> None:
        """Set the parameters of the mixture, in descending order of the weights."""
        weights = log_weights.exp().numpy()
        order = np.argsort(-weights, kind="stable")
        self.weights_: Floats = weights[order] / weights.sum()
        self.means_: Floats = means.numpy()[order]
        self.covariances_: Floats = variances.numpy()[order]
        if self.covariance_type == "spherical":
            self.covariances_ = self.covariances_[:, 0]

    def _joint_log_density(self, X: ArrayLike) -> Tensor:
        """Return the log of the joint density of every point and component, (N, K)."""
        check_is_fitted(self)
        points = torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))
        parts = (self.means_, self.variances_by_coordinate(), self.weights_)
        means, variances, weights = (torch.tensor(part)[None] for part in parts)
        mixture = Mixture(means, variances, weights.log())
        # One component at a time needs memory for one difference per point and coordinate, not for K.
        joint = [
            joint_log_density(Mixture(*(part[:, component : component + 1] for part in mixture)), points[None])[0, 0]
            for component in range(self.n_components_)
        ]
        return torch.stack(joint, dim=1)

    def _num_parameters(self, num_components: int, dim: int) -> int:
        variances = num_components * (1 if self.covariance_type == "spherical" else dim)
        return num_components * dim + variances + num_components - 1
