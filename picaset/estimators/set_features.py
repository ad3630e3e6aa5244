"""Transformers from sets to vectors, with the scikit-learn API.

    SetStatistics        moments, quantiles, extremes and the size of each set
    SetMeanEmbedding     kernel mean embedding by random Fourier features; its inner product is the set kernel
    SetVocabulary        similarity of each set to the clusters (words) of all elements: nearest element and frequency

All read large sets in chunks, in constant memory, so that bags in files need not fit into memory.

Dimensions:  B sets   n elements   D features   F random features   W words
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from picaset.checks import check_choice, check_positive
from picaset.estimators.set_inputs import SetList, read_set_list
from picaset.estimators.validation import (
    BaseEstimator,
    KMeans,
    TransformerMixin,
    check_above_zero,
    check_is_fitted,
    check_random_state,
)

Floats = NDArray[np.float64]
Statistic = Literal["mean", "std", "skewness", "min", "max", "quantiles", "correlation", "size"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
QUANTILE_SAMPLE = 2**14
"""Number of elements from which the quantiles of a set that is read in several chunks are computed."""
SAMPLE = 5000
"""Number of elements from which the width of the kernel and the words are found."""
MAX_STANDARDIZED = 1e6
"""Standardized values are clipped to this, since their squares must be finite in single precision."""
EMBEDDED_VALUES = 2**21
"""Number of random features in memory at a time."""


class SetFeatures(TransformerMixin, BaseEstimator):
    """Base class of the transformers: reading sets and the names of their features."""

    set_column: str | None
    weight_column: int | str | None
    n_features_in_: int

    def _read(self, sets: Any, *, method: str) -> SetList:
        caller = type(self).__name__
        read = read_set_list(
            sets, caller=f"{caller}.{method}", set_column=self.set_column, weight_column=self.weight_column
        )
        if method == "fit":
            self.n_features_in_ = read.num_features
            if read.feature_names is not None:
                self.feature_names_in_ = np.array(read.feature_names, dtype=object)
        else:
            check_features(self, read)
        return read

    def fit(self, sets: Any, y: Any = None) -> Any:
        """Fit the transformer to the sets; ``y`` is ignored."""
        return self.fit_list(self._read(sets, method="fit"))

    def transform(self, sets: Any) -> Floats:
        """Return one vector for every set, (B, features)."""
        check_is_fitted(self, "n_features_in_")
        return self.transform_list(self._read(sets, method="transform"))

    def fit_list(self, read: SetList) -> Any:
        """Fit to sets that are already read."""
        raise NotImplementedError

    def transform_list(self, read: SetList) -> Floats:
        """Transform sets that are already read."""
        raise NotImplementedError

    def _input_names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", [f"x{index}" for index in range(self.n_features_in_)]))

    def __sklearn_tags__(self) -> Any:
        tags: Any = getattr(super(), "__sklearn_tags__")()  # noqa: B009 - scikit-learn has no types
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def check_features(estimator: Any, read: SetList) -> None:
    """Raise unless the sets have the features that the estimator was fitted with."""
    caller = type(estimator).__name__
    if read.num_features != estimator.n_features_in_:
        raise ValueError(
            f"{caller}: sets must have {estimator.n_features_in_} columns, as in fit; got {read.num_features}."
        )
    expected, names = getattr(estimator, "feature_names_in_", None), read.feature_names
    if expected is not None and names is not None and list(expected) != names:
        raise ValueError(
            f"{caller}: the data frame must have the columns of fit in the same order, {', '.join(expected)}; got "
            f"{', '.join(names)}."
        )


@dataclass(eq=False, repr=False)
class SetStatistics(SetFeatures):
    """Describe each set by statistics of its features, as one vector.

    ``make_pipeline(SetStatistics(), SVC())`` classifies sets with two lines of scikit-learn. An element of weight w
    counts as w copies; sets in files are read once, in chunks.

    Args:
        statistics: Which statistics, in this order: ``"mean"``, ``"std"``, ``"skewness"``, ``"min"``, ``"max"``,
            ``"quantiles"`` of each feature, ``"correlation"`` of each pair of features, and ``"size"``, the logarithm
            of the number of elements, or of their total weight.
        quantiles: Probabilities of the quantiles. If a set is read in several chunks, they are those of a random
            sample of its elements.
        set_column: Column of a data frame that identifies the set of each row.
        weight_column: Column with the weight of each element: an index, or a name with a data frame.

    Attributes:
        n_features_in_: Number of features of an element, without the weight.
        feature_names_in_: Names of the features, if fitted with a data frame.

    Example:
        >>> SetStatistics(("mean", "max", "size")).fit_transform([[[1.0, 4.0], [3.0, 0.0]], [[5.0, 6.0]]]).round(3)
        array([[2.   , 2.   , 3.   , 4.   , 0.693],
               [5.   , 6.   , 5.   , 6.   , 0.   ]])
    """

    statistics: Sequence[Statistic] = ("mean", "std", "min", "max", "quantiles", "size")
    _: KW_ONLY
    quantiles: Sequence[float] = (0.25, 0.5, 0.75)
    set_column: str | None = None
    weight_column: int | str | None = None

    def fit_list(self, read: SetList) -> "SetStatistics":
        for statistic in self.statistics:
            check_choice(statistic, STATISTICS, caller="SetStatistics", name="statistics")
        if not all(0 <= probability <= 1 for probability in self.quantiles):
            raise ValueError(f"SetStatistics: quantiles must be between 0 and 1; got {tuple(self.quantiles)}.")
        self.n_features_in_ = read.num_features
        return self

    def transform_list(self, read: SetList) -> Floats:
        return np.stack([self._describe_set(read, index) for index in range(len(read))])

    def _describe_set(self, read: SetList, index: int) -> Floats:
        summary = None
        for values, weights in read.chunks(index):
            part = Summary(values, weights, self.statistics)
            summary = part if summary is None else summary.merge(part)
        assert summary is not None
        return np.concatenate([summary.get(statistic, self.quantiles) for statistic in self.statistics])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the name of every statistic, such as ``mean_x0``."""
        check_is_fitted(self, "n_features_in_")
        names, result = self._input_names(), list[str]()
        for statistic in self.statistics:
            if statistic == "size":
                result.append("log_size")
            elif statistic == "quantiles":
                result += [f"quantile{probability:g}_{name}" for probability in self.quantiles for name in names]
            elif statistic == "correlation":
                pairs = zip(*np.triu_indices(len(names), 1), strict=True)
                result += [f"correlation_{names[first]}_{names[second]}" for first, second in pairs]
            else:
                result += [f"{statistic}_{name}" for name in names]
        return np.array(result, dtype=object)


class Summary:
    """Weighted statistics of some elements of a set; those of two parts merge to those of both (Chan et al. 1979)."""

    def __init__(self, values: Floats, weights: Floats | None, statistics: Sequence[str]) -> None:
        if weights is not None:
            values, weights = values[weights > 0], weights[weights > 0]
        self.total = float(len(values) if weights is None else weights.sum())
        kept = slice(None) if "quantiles" in statistics else slice(0)
        self.samples, self.sample_weights = values[kept], None if weights is None else weights[kept]
        if not len(values):  # an element of weight zero is absent
            values = np.zeros((1, values.shape[1]))
            weights = None
        share = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
        self.mean = share @ values
        centred = values - self.mean
        self.second = (centred.T * share) @ centred if "correlation" in statistics else share @ centred**2
        self.third = share @ centred**3 if "skewness" in statistics else np.zeros_like(self.mean)
        self.least, self.largest = values.min(axis=0), values.max(axis=0)

    def merge(self, other: "Summary") -> "Summary":
        """Merge with the summary of further elements, in place."""
        if other.total == 0:
            return self
        if self.total == 0:
            return other
        total = self.total + other.total
        a, b = self.total / total, other.total / total
        if len(self.samples):
            generator = np.random.default_rng(len(self.samples))
            parts = [thin(part, QUANTILE_SAMPLE * share, generator) for part, share in ((self, a), (other, b))]
            self.samples = np.concatenate([samples for samples, _ in parts])
            self.sample_weights = np.concatenate([weights for _, weights in parts])
        difference = other.mean - self.mean
        outer = np.outer(difference, difference) if self.second.ndim == 2 else difference**2
        self.third = (
            a * self.third
            + b * other.third
            + a * b * (a - b) * difference**3
            + 3 * a * b * difference * (other.variances() - self.variances())
        )
        self.second = a * self.second + b * other.second + a * b * outer
        self.mean, self.total = self.mean + b * difference, total
        self.least, self.largest = np.minimum(self.least, other.least), np.maximum(self.largest, other.largest)
        return self

    def variances(self) -> Floats:
        return np.diagonal(self.second) if self.second.ndim == 2 else self.second

    def get(self, statistic: str, quantiles: Sequence[float]) -> Floats:
        """Return one of the statistics as a vector."""
        deviation = np.sqrt(self.variances())
        safe = np.where(deviation > 0, deviation, 1.0)
        if statistic == "skewness":
            return self.third / safe**3
        if statistic == "correlation":
            return (self.second / np.outer(safe, safe))[np.triu_indices(len(safe), 1)]
        if statistic == "quantiles":
            return weighted_quantiles(self.samples, self.sample_weights, quantiles).ravel()
        size = np.array([np.log(self.total) if self.total else -1.0])
        return {"mean": self.mean, "std": deviation, "min": self.least, "max": self.largest, "size": size}[statistic]


def thin(part: Summary, size: float, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw at most ``size`` elements of a part, whose weights add up to its total."""
    count = min(len(part.samples), max(round(size), 1))
    chosen = generator.choice(len(part.samples), count, replace=False)
    weights = np.ones(len(part.samples)) if part.sample_weights is None else part.sample_weights
    weights = weights[chosen]
    return part.samples[chosen], weights * part.total / weights.sum()


def weighted_quantiles(values: Floats, weights: Floats | None, probabilities: Sequence[float]) -> Floats:
    """Return quantiles of each column, (quantiles, D); equal weights give ordinary quantiles."""
    if not len(values):
        return np.zeros((len(probabilities), values.shape[1]))
    if weights is None:
        return np.quantile(values, probabilities, axis=0)
    result = np.empty((len(probabilities), values.shape[1]))
    for column in range(values.shape[1]):
        order = np.argsort(values[:, column])
        ordered = weights[order]
        position = np.cumsum(ordered) - ordered / 2
        first, last = position[0], position[-1]
        targets = first + np.asarray(probabilities) * (last - first)
        result[:, column] = np.interp(targets, position, values[order, column])
    return result


@dataclass(eq=False, repr=False)
class SetMeanEmbedding(SetFeatures):
    r"""Embed each set by the mean of random Fourier features of its elements.

    .. math::  \mu(X) = \frac{1}{n} \sum_i \phi(x_i), \qquad
               \langle \mu(X), \mu(Y) \rangle \approx \frac{1}{nm} \sum_{ij} \exp(-\gamma \lVert x_i - y_j \rVert^2)

    The inner product of two embeddings is the set kernel (Gaertner et al. 2002), normalized by the lengths of the
    embeddings. A linear classifier on it is a support vector machine with that kernel, in time linear in the elements
    (Rahimi and Recht 2007). Features are standardized by their mean and standard deviation in the sets of ``fit``.

    Args:
        n_components: Number of random features.
        gamma: Width of the kernel of standardized elements: a number, or ``"median"`` for the inverse of the median
            squared distance of two elements.
        normalize: Whether to divide every embedding by its length.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.
        set_column: Column of a data frame that identifies the set of each row.
        weight_column: Column with the weight of each element: an index, or a name with a data frame.

    Attributes:
        mean_: Mean of each feature.
        scale_: Standard deviation of each feature; 1 for constant features.
        gamma_: Width of the kernel.
        directions_: Random directions, (D, F).
        phases_: Random phases, (F,).
        n_features_in_: Number of features of an element, without the weight.

    Example:
        >>> sets = [np.random.default_rng(seed).normal(size=(50, 3)) for seed in range(4)]
        >>> SetMeanEmbedding(100, random_state=0).fit_transform(sets).shape
        (4, 100)
    """

    n_components: int = 512
    _: KW_ONLY
    gamma: float | Literal["median"] = "median"
    normalize: bool = True
    random_state: Any = None
    set_column: str | None = None
    weight_column: int | str | None = None

    def fit_list(self, read: SetList) -> "SetMeanEmbedding":
        check_positive(caller="SetMeanEmbedding", n_components=self.n_components)
        if self.gamma != "median":
            check_above_zero(caller="SetMeanEmbedding", gamma=self.gamma)
        random = check_random_state(self.random_state)
        self.n_features_in_ = read.num_features
        self.mean_, self.scale_, sample = feature_scales(read, random)
        sample = (sample - self.mean_) / self.scale_
        if self.gamma == "median":
            pairs = sample[random.randint(len(sample), size=(2, 2000))]
            median = float(np.median(((pairs[0] - pairs[1]) ** 2).sum(axis=1)))
            self.gamma_ = 1 / median if median > 0 else 1.0
        else:
            self.gamma_ = float(self.gamma)
        shape = (self.n_features_in_, self.n_components)
        self.directions_ = random.normal(size=shape) * np.sqrt(2 * self.gamma_)
        self.phases_ = random.uniform(0, 2 * np.pi, self.n_components)
        return self

    def transform_list(self, read: SetList) -> Floats:
        result = np.zeros((len(read), self.n_components))
        directions, phases = self.directions_.astype(np.float32), self.phases_.astype(np.float32)
        for index in range(len(read)):
            total = 0.0
            for elements, weights in standardized_chunks(self, read, index, width=self.n_components):
                result[index] += weights @ np.cos(elements @ directions + phases)
                total += weights.sum()
            result[index] *= np.sqrt(2 / self.n_components) / (total or 1.0)
        if self.normalize:
            length = np.linalg.norm(result, axis=1, keepdims=True)
            result /= np.where(length > 0, length, 1.0)
        return result

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return a name for every random feature."""
        return np.array([f"embedding{index}" for index in range(self.n_components)], dtype=object)


@dataclass(eq=False, repr=False)
class SetVocabulary(SetFeatures):
    """Describe each set by the words of a vocabulary, clusters of the elements of all sets.

    For each word there are two numbers: the similarity of the nearest element of the set, which a single element can
    raise (as in MILES, Chen et al. 2006), and the share of the elements of the set that the word has. Features are
    standardized as in :class:`SetMeanEmbedding`.

    Args:
        n_words: Number of words, found by k-means in a sample of the elements.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.
        set_column: Column of a data frame that identifies the set of each row.
        weight_column: Column with the weight of each element: an index, or a name with a data frame.

    Attributes:
        mean_: Mean of each feature.
        scale_: Standard deviation of each feature; 1 for constant features.
        words_: Centres of the clusters, (W, D), standardized.
        width_: Squared distance at which the similarity of an element to a word has fallen to 0.6.
        n_features_in_: Number of features of an element, without the weight.

    Example:
        >>> sets = [np.random.default_rng(seed).normal(size=(50, 3)) for seed in range(4)]
        >>> SetVocabulary(10, random_state=0).fit_transform(sets).shape
        (4, 20)
    """

    n_words: int = 64
    _: KW_ONLY
    random_state: Any = None
    set_column: str | None = None
    weight_column: int | str | None = None

    def fit_list(self, read: SetList) -> "SetVocabulary":
        check_positive(caller="SetVocabulary", n_words=self.n_words)
        random = check_random_state(self.random_state)
        self.n_features_in_ = read.num_features
        self.mean_, self.scale_, sample = feature_scales(read, random)
        sample = (sample - self.mean_) / self.scale_
        num_words = min(self.n_words, len(np.unique(sample, axis=0)))
        clustering = KMeans(num_words, n_init=1, max_iter=20, random_state=random).fit(sample)
        self.words_ = clustering.cluster_centers_
        width = float(np.median(squared_distances(sample, self.words_).min(axis=1)))
        self.width_ = width if width > 1e-12 else 1.0
        return self

    def transform_list(self, read: SetList) -> Floats:
        nearest, frequency = np.zeros((len(read), len(self.words_))), np.zeros((len(read), len(self.words_)))
        for index in range(len(read)):
            total = 0.0
            for elements, weights in standardized_chunks(self, read, index, width=len(self.words_)):
                distances = squared_distances(elements, self.words_) / (2 * self.width_)
                present = np.where(weights[:, None] > 0, np.exp(-distances), 0.0)
                nearest[index] = np.maximum(nearest[index], present.max(axis=0))
                # Four times sharper than the similarity: most of an element belongs to its nearest word.
                shares = np.exp(4 * (distances.min(axis=1, keepdims=True) - distances))
                frequency[index] += weights @ (shares / shares.sum(axis=1, keepdims=True))
                total += weights.sum()
            frequency[index] /= total or 1.0
        return np.concatenate([nearest, frequency], axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the two numbers of every word."""
        check_is_fitted(self, "words_")
        words = range(len(self.words_))
        return np.array([f"{kind}{word}" for kind in ("nearest", "frequency") for word in words], dtype=object)

    def nearest_words(self, values: Floats) -> NDArray[np.int64]:
        """Return the index of the nearest word of each element, (n,)."""
        return squared_distances((values - self.mean_) / self.scale_, self.words_).argmin(axis=1)


def squared_distances(elements: NDArray[Any], words: Floats) -> Floats:
    """Return the squared distance of every element to every word, (n, W)."""
    products = (elements**2).sum(axis=1)[:, None] - 2 * elements @ words.T + (words**2).sum(axis=1)
    return np.maximum(products, 0.0)


def standardized_chunks(
    fitted: "SetMeanEmbedding | SetVocabulary", read: SetList, index: int, *, width: int
) -> Iterator[tuple[NDArray[np.float32], Floats]]:
    """Yield standardized elements and their weights, few enough that ``width`` values for each fit into caches."""
    rows = max(EMBEDDED_VALUES // width, 1)
    for values, weights in read.chunks(index):
        for start in range(0, len(values), rows):
            part = (values[start : start + rows] - fitted.mean_) / fitted.scale_
            part = np.clip(part, -MAX_STANDARDIZED, MAX_STANDARDIZED).astype(np.float32)
            yield part, np.ones(len(part)) if weights is None else weights[start : start + rows]


def feature_scales(read: SetList, random: Any) -> tuple[Floats, Floats, Floats]:
    """Return the mean and the standard deviation of each feature over all elements, and a sample of elements."""
    summary, samples = None, list[Floats]()
    per_chunk = max(SAMPLE // len(read), 1)
    for index in range(len(read)):
        for values, weights in read.chunks(index):
            part = Summary(values, weights, ())
            samples.append(values[random.randint(len(values), size=per_chunk)])
            summary = part if summary is None else summary.merge(part)
    assert summary is not None
    deviation = np.sqrt(summary.variances())
    return summary.mean, np.where(deviation > 0, deviation, 1.0), np.concatenate(samples)
