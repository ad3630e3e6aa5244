"""AmortizedMixture: as likely as scikit-learn, wherever the points lie, with the scikit-learn API."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from picaset import AmortizedMixture
from picaset.estimators import mixture_search
from picaset.lab.data.gaussian_mixtures import benchmark_sets, draw_mixtures
from picaset.networks.mixture_proposer import MixtureProposer

ONLY_IN_THE_PLANE = dict.fromkeys(
    [
        "check_dict_unchanged",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit_score_takes_y",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
    ],
    "the check has points of other than two coordinates, for which no network is shipped",
)


@pytest.mark.as_installed  # some checks give parameters of the wrong type
@parametrize_with_checks(
    [AmortizedMixture(n_components=2, init="k-means++"), AmortizedMixture(n_components=2)],
    expected_failed_checks=lambda estimator: ONLY_IN_THE_PLANE if estimator.init == "network" else {},
    xfail_strict=True,
)
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
    ours = scores(AmortizedMixture(4, init=init, random_state=0).fit_many(sets), sets)
    theirs = scores(
        [GaussianMixture(4, covariance_type="spherical", n_init=10, random_state=0).fit(x) for x in sets], sets
    )
    assert ours.mean() > theirs.mean() - 0.005


def test_one_start_by_k_means_is_less_likely_than_the_network():
    sets = sets_of(60, seed=6)
    with_network = scores(AmortizedMixture(4, n_init=0, random_state=0).fit_many(sets), sets).mean()
    without = scores(AmortizedMixture(4, init="k-means++", n_init=1, random_state=0).fit_many(sets), sets).mean()
    assert with_network > without + 0.01


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shift", [0.0, -12.0, 1e4])
def test_place_and_scale_do_not_matter(points, scale, shift):
    at_home = AmortizedMixture(4, random_state=0).fit(points)
    away = AmortizedMixture(4, random_state=0).fit(scale * (points + shift))
    np.testing.assert_allclose(away.means_, scale * (at_home.means_ + shift), rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(away.covariances_, scale**2 * at_home.covariances_, rtol=1e-3)
    np.testing.assert_allclose(away.weights_, at_home.weights_, rtol=1e-3)


def test_many_sets_at_once_are_fitted_as_if_each_were_alone():
    sets = [*sets_of(10, sizes=(150, 250)), *sets_of(10, sizes=(300, 900))]
    together = AmortizedMixture(3, n_init=0, random_state=0).fit_many(sets)
    alone = [AmortizedMixture(3, n_init=0, random_state=0).fit(one) for one in sets]
    found, expected = scores(together, sets), scores(alone, sets)
    np.testing.assert_allclose(found[:10], expected[:10], atol=1e-5)  # larger sets are sampled, each time anew
    assert abs(found.mean() - expected.mean()) < 0.02


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
def test_densities_are_those_of_the_mixture(points, covariance_type):
    mixture = AmortizedMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    variances = mixture.covariances_[:, None] if covariance_type == "spherical" else mixture.covariances_
    deviations = np.broadcast_to(np.sqrt(variances), (3, 2))
    each = [
        weight * norm.pdf(points, mean, deviation).prod(axis=1)
        for weight, mean, deviation in zip(mixture.weights_, mixture.means_, deviations, strict=True)
    ]
    total = np.sum(each, axis=0)
    np.testing.assert_allclose(mixture.score_samples(points), np.log(total))
    np.testing.assert_allclose(mixture.predict_proba(points), (each / total).T, atol=1e-12)
    np.testing.assert_array_equal(mixture.predict(points), np.argmax(each, axis=0))
    assert mixture.score(points) == pytest.approx(mixture.lower_bound_)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
def test_criteria_are_those_of_scikit_learn(points, covariance_type):
    ours = AmortizedMixture(4, covariance_type=covariance_type, random_state=0).fit(points)
    theirs = GaussianMixture(4, covariance_type=covariance_type).fit(points)
    for name in ("weights_", "means_", "covariances_"):
        setattr(theirs, name, getattr(ours, name))
    theirs.precisions_cholesky_ = 1 / np.sqrt(ours.covariances_)
    assert ours.bic(points) == pytest.approx(theirs.bic(points))
    assert ours.aic(points) == pytest.approx(theirs.aic(points))


def test_samples_come_from_the_mixture(points):
    mixture = AmortizedMixture(4, random_state=0).fit(points)
    drawn, labels = mixture.sample(20_000)
    np.testing.assert_allclose(np.bincount(labels, minlength=4) / 20_000, mixture.weights_, atol=0.02)
    for component in range(4):
        held = drawn[labels == component]
        np.testing.assert_allclose(held.mean(axis=0), mixture.means_[component], atol=0.1)
        assert held.var() == pytest.approx(mixture.covariances_[component] + mixture.means_[component].var(), rel=0.1)


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
    mixture = AmortizedMixture("auto", random_state=0).fit(points)
    assert mixture.n_components_ == truth
    assert min(mixture.bic_by_components_, key=mixture.bic_by_components_.get) == truth
    assert mixture.bic_by_components_[truth] == pytest.approx(mixture.bic(points))


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
        (dict(covariance_type="full"), "covariance_type must be one of 'spherical', 'diag'; got 'full'"),
        (dict(init="random"), "init must be one of 'network', 'k-means\\+\\+'; got 'random'"),
        (dict(init="k-means++", n_init=0), "n_init must be at least 1; got 0"),
        (dict(n_init=-1), "n_init must be at least 0; got -1"),
        (dict(max_iter=0), "max_iter must be at least 1; got 0"),
        (dict(tol=0.0), "tol must be above 0; got 0.0"),
        (dict(reg_covar=-1.0), "reg_covar must be above 0; got -1.0"),
        (dict(n_components=700), "n_components = 700 needs at least 700 points; got n_samples"),
        (dict(n_components=9), "no network for 2 coordinates and 9 components.*train-clusterer --coordinates 2"),
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
        ([np.zeros((3, 2)), np.zeros((1, 2))], "n_samples = 1 in set 1"),
        ([1e200 * np.eye(2)], r"numbers must be between -1e\+100 and 1e\+100; set 0 has 1e\+200 in row 0, column 0"),
    ],
)
def test_sets_that_cannot_be_fitted_are_named(sets, message):
    with pytest.raises(ValueError, match=message):
        AmortizedMixture(2).fit_many(sets)


def test_points_that_double_precision_cannot_tell_apart_are_named():
    with pytest.raises(ValueError, match="the points of set 0 are too far apart, or too close, for double precision"):
        AmortizedMixture(2, reg_covar=1e-320).fit_many([np.zeros((5, 2))])


def test_a_trained_network_is_found_and_preferred_when_it_is_the_smallest_that_fits(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path / "mine"))
    with pytest.raises(ValueError, match="no network for 3 coordinates and 2 components"):
        mixture_search.find_proposer(dim_in=3, num_components=2)
    for most in (5, 3):
        MixtureProposer(dim_in=3, max_components=most, dim=16).save_pretrained(tmp_path / "run")
        assert mixture_search.register_proposer(tmp_path / "run") == tmp_path / "mine" / f"clusterer_3d_{most}"
    assert mixture_search.find_proposer(dim_in=3, num_components=2).max_components == 3
    assert mixture_search.find_proposer(dim_in=3, num_components=4).max_components == 5
    random = np.random.default_rng(0)
    assert AmortizedMixture(4, random_state=0).fit(random.standard_normal((50, 3))).means_.shape == (4, 3)


def test_registering_something_else_replaces_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path / "mine"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the description of a picaset network"):
        mixture_search.register_proposer(tmp_path / "other")
    assert not (tmp_path / "mine").exists()
