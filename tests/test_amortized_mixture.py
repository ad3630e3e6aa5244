"""AmortizedMixture: clusters of any shape, wherever the points lie, with the scikit-learn API."""

import os
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from picaset import AmortizedMixture
from picaset.estimators import mixture_search
from picaset.lab.data.gaussian_mixtures import benchmark_sets, draw_mixtures
from picaset.networks.mixture_proposer import MixtureProposer


@pytest.mark.as_installed  # some checks give parameters of the wrong type
@parametrize_with_checks([AmortizedMixture(n_components=2, covariance_type="diag"), AmortizedMixture()])
@pytest.mark.filterwarnings("ignore:.*components is the largest number:UserWarning")
@pytest.mark.filterwarnings("ignore:.*columns plus two, and gets 1 component:UserWarning")
def test_it_is_an_estimator_as_scikit_learn_wants_them(estimator, check):
    check(estimator)


def sets_of(count: int, *, sizes=(300, 600), num_components: int = 4, seed: int = 5) -> list[np.ndarray]:
    batches = benchmark_sets(count, sizes=sizes, seed=seed, num_components=num_components)
    return [points.double().numpy() for batch, _ in batches for points in batch]


def scores(mixtures, sets) -> np.ndarray:
    return np.array([mixture.score(points) for mixture, points in zip(mixtures, sets, strict=True)])


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return sets_of(1)[0]


@pytest.mark.parametrize("init", ["network", "k-means++"])
def test_as_likely_as_scikit_learn_from_ten_starts(init):
    sets = sets_of(30)
    ours = scores(AmortizedMixture(4, covariance_type="spherical", init=init, random_state=0).fit_many(sets), sets)
    theirs = scores(
        [GaussianMixture(4, covariance_type="spherical", n_init=10, random_state=0).fit(x) for x in sets], sets
    )
    assert ours.mean() > theirs.mean() - 0.005


@pytest.mark.parametrize("covariance_type", ["diag", "tied", "full"])
@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_offsets_and_units_of_the_columns_do_not_matter(points, covariance_type, shift):
    scale = np.array([1e-3, 1e4])
    at_home = AmortizedMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    away = AmortizedMixture(3, covariance_type=covariance_type, random_state=0).fit(scale * points + shift * scale)
    np.testing.assert_allclose((away.means_ / scale - shift), at_home.means_, atol=1e-4)
    variances = away.variances_by_coordinate() / scale**2
    np.testing.assert_allclose(variances, at_home.variances_by_coordinate(), rtol=1e-3)
    np.testing.assert_array_equal(away.predict(scale * points + shift * scale), at_home.predict(points))


def test_the_smallest_variance_is_relative_to_the_column():
    random = np.random.default_rng(0)
    points = np.stack([random.normal(0, 400, 200), 1.7e9 + random.normal(0, 1e6, 200)], axis=1)
    mixture = AmortizedMixture(1, random_state=0).fit(points)
    np.testing.assert_allclose(np.sqrt(mixture.variances_by_coordinate()[0]), points.std(axis=0), rtol=1e-4)


def mixed_sets() -> list[np.ndarray]:
    """Sets of very different sizes and shapes."""
    random = np.random.default_rng(0)
    bent = random.normal(size=(80, 2)) @ [[3.0, 2.9], [0.0, 0.2]]
    return [sets_of(1, sizes=(150, 250))[0], bent, sets_of(1, sizes=(30, 40))[0], 1e6 + random.normal(size=(7, 2)) * 9]


@pytest.mark.parametrize("options", [dict(), dict(noise=True), dict(n_components=3, covariance_type="full")])
def test_many_sets_at_once_are_fitted_as_if_each_were_alone(options):
    sets = mixed_sets()
    together = AmortizedMixture(**options, random_state=0).fit_many(sets)
    for points, mixture in zip(sets, together, strict=True):
        alone = AmortizedMixture(**options, random_state=0).fit(points)
        assert (alone.n_components_, alone.covariance_type_) == (mixture.n_components_, mixture.covariance_type_)
        np.testing.assert_allclose(alone.means_, mixture.means_, rtol=1e-5, atol=1e-5)
        assert alone.lower_bound_ == pytest.approx(mixture.lower_bound_, abs=1e-6)


@pytest.mark.parametrize("options", [dict(), dict(noise=True), dict(n_components=3, covariance_type="full")])
def test_weights_are_repetitions(points, options):
    repeats = np.random.default_rng(0).integers(0, 4, len(points))
    weighted = AmortizedMixture(**options, random_state=0).fit(points, sample_weight=repeats)
    repeated = AmortizedMixture(**options, random_state=0).fit(points.repeat(repeats, axis=0))
    assert weighted.n_components_ == repeated.n_components_
    np.testing.assert_allclose(weighted.means_, repeated.means_, atol=1e-5)
    np.testing.assert_allclose(weighted.covariances_, repeated.covariances_, rtol=1e-4, atol=1e-9)
    assert weighted.score(points, sample_weight=repeats) == pytest.approx(weighted.lower_bound_, abs=1e-9)


def test_the_order_of_the_points_does_not_matter(points):
    shuffled = np.random.default_rng(1).permutation(points)
    first, second = (AmortizedMixture(random_state=0).fit(order) for order in (points, shuffled))
    np.testing.assert_allclose(first.means_, second.means_, rtol=1e-9)


TYPES = ["spherical", "diag", "tied", "full"]


@pytest.mark.parametrize("covariance_type", TYPES)
def test_densities_and_criteria_are_those_of_scikit_learn(points, covariance_type):
    ours = AmortizedMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    theirs = GaussianMixture(3, covariance_type=covariance_type).fit(points)
    for name in ("weights_", "means_", "covariances_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
        setattr(theirs, name, getattr(ours, name))
    theirs.precisions_cholesky_ = _compute_precision_cholesky(ours.covariances_, covariance_type)
    np.testing.assert_allclose(ours.score_samples(points), theirs.score_samples(points))
    np.testing.assert_allclose(ours.predict_proba(points), theirs.predict_proba(points), atol=1e-9)
    np.testing.assert_array_equal(ours.predict(points), theirs.predict(points))
    assert ours.score(points) == pytest.approx(ours.lower_bound_)
    assert ours.bic(points) == pytest.approx(theirs.bic(points))
    assert ours.aic(points) == pytest.approx(theirs.aic(points))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_samples_come_from_the_mixture(points, covariance_type):
    mixture = AmortizedMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    drawn, labels = mixture.sample(20_000)
    np.testing.assert_allclose(np.bincount(labels, minlength=3) / 20_000, mixture.weights_, atol=0.02)
    for component, matrix in enumerate(mixture.covariance_matrices()):
        held = drawn[labels == component]
        np.testing.assert_allclose(held.mean(axis=0), mixture.means_[component], atol=0.2)
        np.testing.assert_allclose(np.cov(held.T), matrix, atol=0.1 * np.abs(matrix).max())


def elongated(random: np.random.Generator, *, noise: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three long parallel and crossing clusters, and uniform noise with label -1."""
    factors = [
        np.array([[4.0, 4.0], [0.3, -0.3]]),
        np.array([[4.0, 4.0], [0.3, -0.3]]),
        np.array([[3.0, -3.0], [0.4, 0.4]]),
    ]
    centres = np.array([[0.0, 0.0], [0.0, 6.0], [20.0, 0.0]])
    clusters = [c + random.standard_normal((120, 2)) @ f for c, f in zip(centres, factors, strict=True)]
    points = np.concatenate(clusters)
    background = random.uniform(points.min(axis=0), points.max(axis=0), (noise, 2))
    return np.concatenate([points, background]), np.r_[np.repeat(np.arange(3), 120), np.full(noise, -1)]


def test_without_options_long_clusters_are_found():
    points, labels = elongated(np.random.default_rng(0))
    mixture = AmortizedMixture(random_state=0).fit(points)
    assert (mixture.n_components_, mixture.covariance_type_) in [(3, "full"), (3, "tied")]
    assert adjusted_rand_score(labels, mixture.predict(points)) > 0.98


def test_iris_has_three_clusters_with_almost_any_seed():
    points, _ = load_iris(return_X_y=True)
    numbers = [AmortizedMixture(random_state=seed).fit(points).n_components_ for seed in range(10, 30)]
    assert sum(number == 3 for number in numbers) >= 17


def test_thin_clusters_side_by_side_are_found_in_any_direction():
    sets = list[np.ndarray]()
    for seed, angle in enumerate(np.linspace(0, np.pi, 8)):
        random = np.random.default_rng(seed)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        sets.append(np.concatenate([random.normal([0, y], [13, 1], (150, 2)) @ turn for y in (0, 6)]))
    mixtures = AmortizedMixture(random_state=0).fit_many(sets)
    labels = np.repeat([0, 1], 150)
    scores = [adjusted_rand_score(labels, each.predict(points)) for each, points in zip(mixtures, sets, strict=True)]
    assert min(scores) > 0.9


def test_noise_has_its_own_label_and_weight():
    points, labels = elongated(np.random.default_rng(0), noise=30)
    mixture = AmortizedMixture(noise=True, random_state=0).fit(points)
    predicted = mixture.predict(points)
    assert mixture.n_components_ == 3
    assert mixture.noise_weight_ == pytest.approx(30 / 390, abs=0.03)
    assert mixture.weights_.sum() + mixture.noise_weight_ == pytest.approx(1)
    assert (predicted[labels == -1] == -1).mean() > 0.6  # the others lie within the clusters
    assert (predicted[labels >= 0] == -1).mean() < 0.03
    shares = mixture.predict_proba(points).sum(axis=1)
    assert shares[labels >= 0].mean() > 0.95
    assert shares[labels == -1].mean() < 0.4
    assert mixture.score(points) == pytest.approx(mixture.lower_bound_)


@pytest.mark.parametrize("number", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_uniform_background_does_not_hide_clusters_side_by_side(number, seed):
    random = np.random.default_rng(seed)
    values = np.concatenate([random.normal(8.0 * index, random.uniform(0.4, 1.6), 100) for index in range(number)])
    values = np.concatenate([values, random.uniform(values.min(), values.max(), 9 * number)])
    mixture = AmortizedMixture(noise=True, random_state=0).fit(values[:, None])
    assert mixture.n_components_ == number
    assert mixture.noise_weight_ < 0.2


def test_reaching_max_components_is_warned_about():
    random = np.random.default_rng(0)
    points = np.concatenate([20 * np.array([i, i % 2]) + random.standard_normal((40, 2)) for i in range(4)])
    with pytest.warns(UserWarning, match="3 components is the largest number that was tried"):
        mixture = AmortizedMixture(max_components=3, random_state=0).fit(points)
    assert mixture.n_components_ == 3
    assert AmortizedMixture(max_components=5, random_state=0).fit(points).note_ == ""


def test_probabilities_of_the_numbers_follow_from_the_criterion(points):
    mixture = AmortizedMixture(random_state=0).fit(points)
    assert sum(mixture.n_components_probabilities_.values()) == pytest.approx(1)
    best = max(mixture.n_components_probabilities_, key=mixture.n_components_probabilities_.get)
    assert best == mixture.n_components_


def test_small_sets_get_the_mixture_that_exists_and_do_not_stop_others(points):
    sets = [points, points[:1], points[:3]]
    with pytest.warns(
        UserWarning, match=r"Set 1: The set has 1 point, fewer than n_components = 4.* 1 more set has notes"
    ):
        mixtures = AmortizedMixture(4, random_state=0).fit_many(sets)
    assert [mixture.n_components_ for mixture in mixtures] == [4, 1, 3]
    assert mixtures[0].note_ == ""
    np.testing.assert_allclose(mixtures[1].means_, points[:1])
    assert all(np.isfinite(mixture.score(one)) for mixture, one in zip(mixtures, sets, strict=True))


def test_parts_of_the_data_one_after_the_other_are_like_all_at_once():
    random = np.random.default_rng(0)
    points, _ = elongated(random)
    points = random.permutation(points)
    parts = AmortizedMixture(3, covariance_type="full", random_state=0)
    for part in np.array_split(points, 3):
        parts.partial_fit(part)
    whole = AmortizedMixture(3, covariance_type="full", random_state=0).fit(points)
    assert parts.n_samples_seen_ == len(points)
    assert parts.score(points) == pytest.approx(whole.score(points), abs=0.02)


def test_missing_values_are_refused_or_integrated_over():
    random = np.random.default_rng(0)
    points, labels = elongated(random)
    points[random.random(points.shape) < 0.1] = np.nan
    some = ~np.isnan(points).all(axis=1)
    points, labels = points[some], labels[some]
    with pytest.raises(ValueError, match=r"X must be finite; got NaN in row .*missing='marginalize'"):
        AmortizedMixture().fit(points)
    mixture = AmortizedMixture(missing="marginalize", random_state=0).fit(points)
    assert mixture.n_components_ == 3
    complete = ~np.isnan(points).any(axis=1)
    assert adjusted_rand_score(labels[complete], mixture.predict(points[complete])) > 0.95
    assert mixture.score(points) == pytest.approx(mixture.lower_bound_)
    with pytest.raises(ValueError, match="missing values can be marginalized in fit only"):
        mixture.partial_fit(points)


def test_no_missing_value_gives_the_same_mixture_as_without_the_option(points):
    plain, other = (AmortizedMixture(random_state=0, missing=kind).fit(points) for kind in ("error", "marginalize"))
    np.testing.assert_array_equal(plain.means_, other.means_)


def test_mostly_incomplete_rows_are_fitted():
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(size=(100, 4)), 8 + random.normal(size=(100, 4))])
    points[random.random(points.shape) < 0.35] = np.nan
    mixture = AmortizedMixture(missing="marginalize", random_state=0).fit(points)
    assert mixture.n_components_ == 2
    points[:, 2] = np.nan
    with pytest.raises(ValueError, match="all values of column 2 are missing"):
        AmortizedMixture(missing="marginalize").fit(points)
    with pytest.raises(ValueError, match="all values of set 0 are missing"):
        AmortizedMixture(missing="marginalize").fit_many([np.full((3, 2), np.nan)])


@pytest.mark.parametrize("options", [dict(), dict(noise=True), dict(n_components=2, covariance_type="tied")])
def test_saved_mixtures_give_the_same_predictions(points, tmp_path, options):
    mixture = AmortizedMixture(**options, random_state=0).fit(points)
    mixture.save(tmp_path / "saved")
    loaded = AmortizedMixture.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict_proba(points), mixture.predict_proba(points))
    assert loaded.get_params() == mixture.get_params()
    assert loaded.covariance_type_ == mixture.covariance_type_
    if not options:
        assert loaded.n_components_probabilities_ == mixture.n_components_probabilities_


def test_a_file_that_lacks_an_attribute_is_refused(points, tmp_path):
    AmortizedMixture(2, random_state=0).fit(points).save(tmp_path)
    path = tmp_path / "estimator.json"
    path.write_text(path.read_text().replace('"means_"', '"other"'))
    with pytest.raises(ValueError, match="learned lacks 'means_'; was it written by another program"):
        AmortizedMixture.load(tmp_path)


def test_too_few_points_for_the_columns_have_a_note():
    random = np.random.default_rng(0)
    with pytest.warns(UserWarning, match=r"Set 1: The set has 4 points, fewer than its 3 columns plus two, and gets 1"):
        mixtures = AmortizedMixture(random_state=0).fit_many([random.normal(size=(size, 3)) for size in (5, 4, 1)])
    assert [bool(mixture.note_) for mixture in mixtures] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(n_components=2.5), "n_components must be an integer or 'auto'; got 2.5"),
        (dict(n_components=True), "n_components must be an integer or 'auto'; got True"),
        (dict(n_components="two"), "n_components must be an integer or 'auto'; got 'two'"),
        (dict(noise="yes"), "noise must be True or False; got 'yes'"),
    ],
)
@pytest.mark.as_installed
def test_options_of_the_wrong_type_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AmortizedMixture(**options).fit(np.zeros((5, 2)))


def degenerate_sets() -> st.SearchStrategy[np.ndarray]:
    """Few, duplicate, collinear and constant points, at any place and scale."""

    @st.composite
    def draw(draw: st.DrawFn) -> np.ndarray:
        size, dim = draw(st.integers(1, 60)), draw(st.integers(1, 15))
        random = np.random.default_rng(draw(st.integers(0, 2**31)))
        rank = draw(st.integers(0, dim))
        points = random.standard_normal((size, rank)) @ random.standard_normal((rank, dim))
        if draw(st.booleans()):
            points = np.round(points)
        points = points[random.integers(0, draw(st.integers(1, size)), size)]
        scales = 10.0 ** np.array(draw(st.lists(st.integers(-9, 9), min_size=dim, max_size=dim)))
        return points * scales + draw(st.sampled_from([0.0, 1.0, -1e9, 1e12]))

    return draw()


@pytest.mark.hypothesis
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(deadline=None, max_examples=10_000 if os.environ.get("PICASET_HYPOTHESIS") == "laws" else 40)
@given(
    points=degenerate_sets(),
    noise=st.booleans(),
    kind=st.sampled_from(["auto", *TYPES]),
    number=st.sampled_from(["auto", 1, 2, 5]),
    weights=st.sampled_from([None, "whole", "tiny", "huge"]),
    together=st.booleans(),
)
def test_degenerate_sets_have_finite_mixtures(points, noise, kind, number, weights, together):
    estimator = AmortizedMixture(number, covariance_type=kind, noise=noise, max_components=3, random_state=0)
    random = np.random.default_rng(len(points))
    if weights == "whole":
        weights = np.r_[1, random.integers(0, 4, len(points) - 1)]
    elif weights is not None:
        weights = random.uniform(0.5, 2.0, len(points)) * {"tiny": 1e-6, "huge": 1e6}[weights]
    if together:
        half = points[: (len(points) + 1) // 2]
        own = None if weights is None else [weights, weights[: len(half)]]
        mixture, _ = estimator.fit_many([points, half], sample_weight=own)
    else:
        mixture = estimator.fit(points, sample_weight=weights)
    for values in (mixture.means_, mixture.covariances_, mixture.weights_, mixture.score_samples(points)):
        assert np.isfinite(values).all()
    assert np.linalg.eigvalsh(mixture.covariance_matrices()).min() > -1e-9 * mixture.covariance_matrices().max()
    assert mixture.weights_.sum() + mixture.noise_weight_ == pytest.approx(1)


def test_a_diagonal_mixture_fits_stretched_clusters_better():
    generator = torch.Generator().manual_seed(0)
    stretched = draw_mixtures(1, 400, generator=generator)[0][0].double().numpy() * [1.0, 6.0]
    spherical, diagonal = (
        AmortizedMixture(4, covariance_type=kind, random_state=0).fit(stretched) for kind in ("spherical", "diag")
    )
    assert diagonal.lower_bound_ > spherical.lower_bound_ + 0.05


@pytest.mark.parametrize("truth", [1, 2, 5, 8])
def test_auto_finds_the_number_of_well_separated_components(truth):
    random = np.random.default_rng(truth)
    centres = 20 * np.stack([np.arange(truth) % 3, np.arange(truth) // 3], axis=1)
    points = np.concatenate([centre + random.standard_normal((60, 2)) for centre in centres])
    with warnings.catch_warnings():
        warnings.simplefilter("error" if truth < 8 else "ignore")
        mixture = AmortizedMixture("auto", random_state=0).fit(points)
        tied = AmortizedMixture("auto", covariance_type="tied", random_state=0).fit(points)
    assert mixture.n_components_ == truth
    assert min(mixture.bic_by_components_, key=mixture.bic_by_components_.get) == truth
    assert tied.bic_by_components_[tied.n_components_] == pytest.approx(tied.bic(points))


def test_weights_fall_and_add_up(points):
    mixture = AmortizedMixture(6, random_state=0).fit(points)
    assert (np.diff(mixture.weights_) <= 0).all()
    assert mixture.weights_.sum() == pytest.approx(1)


def test_the_same_seed_gives_the_same_mixture(points):
    first, again = (AmortizedMixture(4, random_state=3).fit(points) for _ in range(2))
    np.testing.assert_array_equal(first.means_, again.means_)


def test_it_works_in_a_pipeline_a_clone_and_a_grid_search(points):
    pipeline = make_pipeline(StandardScaler(), AmortizedMixture(4, random_state=0)).fit(points)
    assert pipeline.predict(points).shape == (len(points),)
    search = GridSearchCV(AmortizedMixture(random_state=0), {"n_components": [1, 4]}, cv=3).fit(points)
    assert search.best_params_ == {"n_components": 4}
    assert clone(AmortizedMixture(7, init="k-means++")).get_params()["n_components"] == 7


@pytest.mark.parametrize("points", [np.zeros((9, 2)), np.full((9, 2), 1e12), np.eye(2), 1e140 * np.eye(2)])
def test_points_that_are_equal_few_or_far_have_a_finite_mixture(points):
    mixture = AmortizedMixture(2, random_state=0).fit(points)
    assert np.isfinite(mixture.score_samples(points)).all()
    assert np.isfinite(mixture.means_).all()


@pytest.mark.as_installed
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(n_components=0), "n_components must be at least 1; got 0"),
        (dict(n_components="many"), "n_components must be an integer or 'auto'; got 'many'"),
        (dict(covariance_type="round"), "must be one of 'auto', 'spherical', 'diag', 'tied', 'full'; got 'round'"),
        (dict(init="random"), "init must be one of 'k-means\\+\\+', 'network'; got 'random'"),
        (dict(missing="drop"), "missing must be one of 'error', 'marginalize'; got 'drop'"),
        (dict(n_init=0), "n_init must be at least 1; got 0"),
        (dict(max_iter=0), "max_iter must be at least 1; got 0"),
        (dict(tol=0.0), "tol must be above 0; got 0.0"),
        (dict(reg_covar=-1.0), "reg_covar must be above 0; got -1.0"),
        (dict(device="abacus"), "device must be one that PyTorch has on this machine, such as 'cpu'; got 'abacus'"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(points, parameters, message):
    with pytest.raises(ValueError, match=message):
        AmortizedMixture(**parameters).fit(points)


@pytest.mark.as_installed
@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "expected at least one set; got none"),
        ([np.zeros((3, 2)), np.zeros(3)], r"set 1 must have shape \(n, D\); got \(3,\)"),
        ([np.zeros((3, 2)), np.zeros((3, 1))], "set 0 has 2, set 1 has 1"),
        ([np.zeros((3, 2)), [[0, 1], [2, np.nan]]], "set 1 has nan in row 1, column 1"),
        ([np.zeros((3, 2)), [["a", "b"]]], "set 1 is not an array of numbers"),
        ([np.zeros((3, 2)), np.zeros((0, 2))], "set 1 has no points"),
        ([1e200 * np.eye(2)], r"numbers must be between -1e\+100 and 1e\+100; set 0 has 1e\+200 in row 0, column 0"),
    ],
)
def test_sets_that_cannot_be_fitted_are_named(sets, message):
    with pytest.raises(ValueError, match=message):
        AmortizedMixture(2).fit_many(sets)


@pytest.mark.parametrize("weights", [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0], [np.nan, 1.0, 1.0]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ValueError, match=r"sample_weight of set 0 must have shape \(3,\) and hold finite numbers"):
        AmortizedMixture().fit(np.eye(3), sample_weight=weights)
    with pytest.raises(ValueError, match="one array for each of the 2 sets; got 1"):
        AmortizedMixture().fit_many([np.eye(3), np.eye(3)], sample_weight=[np.ones(3)])


def test_points_that_double_precision_cannot_tell_apart_are_named():
    with pytest.raises(ValueError, match="the points of set 0 are too far apart, or too close, for double precision"):
        AmortizedMixture(2, reg_covar=1e-320).fit_many([1e-170 * np.eye(2)])


def test_a_trained_network_is_found_and_preferred_when_it_is_the_smallest_that_fits(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path / "mine"))
    assert mixture_search.find_proposer(dim_in=3, num_components=2) is None
    mixture_search.find_proposer_in.cache_clear()
    for most in (5, 3):
        MixtureProposer(dim_in=3, max_components=most, dim=16).save_pretrained(tmp_path / "run")
        assert mixture_search.register_proposer(tmp_path / "run") == tmp_path / "mine" / f"clusterer_3d_{most}"
    assert mixture_search.find_proposer(dim_in=3, num_components=2).max_components == 3
    assert mixture_search.find_proposer(dim_in=3, num_components=4).max_components == 5
    random = np.random.default_rng(0)
    mixture = AmortizedMixture(4, init="network", random_state=0).fit(random.standard_normal((50, 3)))
    assert mixture.means_.shape == (4, 3)


@pytest.mark.parametrize(("dim", "number"), [(2, 4), (2, 11), (7, 3)])
def test_the_network_is_used_where_it_fits_and_no_error_elsewhere(dim, number):
    points = np.random.default_rng(0).standard_normal((60, dim))
    mixture = AmortizedMixture(number, covariance_type="diag", init="network", random_state=0).fit(points)
    assert mixture.means_.shape == (number, dim)


def test_registering_something_else_replaces_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path / "mine"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the description of a picaset network"):
        mixture_search.register_proposer(tmp_path / "other")
    assert not (tmp_path / "mine").exists()
