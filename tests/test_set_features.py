"""The transformers from sets to vectors, and the forms in which sets are given."""

import re
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import torch
from scipy.stats import skew
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from picaset import SetBatch, SetMeanEmbedding, SetStatistics, SetVocabulary
from picaset.estimators import set_inputs
from picaset.estimators.set_features import STATISTICS
from picaset.estimators.set_inputs import read_set_list, sample_elements

TRANSFORMERS = [SetStatistics(STATISTICS), SetMeanEmbedding(32, random_state=0), SetVocabulary(7, random_state=0)]
EVERY = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda one: type(one).__name__)


def draw_sets(count: int = 9, seed: int = 0, dim: int = 3) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(generator.integers(2, 12), dim)) ** 3 for _ in range(count)]


def test_statistics_are_the_literal_ones():
    (elements,) = draw_sets(1)
    result = SetStatistics(STATISTICS, quantiles=(0.1, 0.5)).fit_transform([elements])[0]
    expected = [
        elements.mean(axis=0),
        elements.std(axis=0),
        skew(elements, axis=0),
        elements.min(axis=0),
        elements.max(axis=0),
        *np.quantile(elements, (0.1, 0.5), axis=0),
        np.corrcoef(elements.T)[np.triu_indices(3, 1)],
        [np.log(len(elements))],
    ]
    np.testing.assert_allclose(result, np.concatenate(expected), rtol=1e-9)


@EVERY
def test_a_set_that_is_read_in_chunks_is_described_like_the_whole_set(transformer, tmp_path, monkeypatch):
    sets = [np.random.default_rng(seed).normal(size=(200, 3)) ** 3 for seed in range(3)]
    for index, elements in enumerate(sets):
        np.save(tmp_path / f"{index}.npy", elements)
    fitted = clone(transformer).fit(sets)
    whole = fitted.transform(sets)
    monkeypatch.setattr(set_inputs, "CHUNK_VALUES", 3 * 30)
    paths = [tmp_path / f"{index}.npy" for index in range(3)]
    np.testing.assert_allclose(fitted.transform(paths), whole, rtol=1e-5, atol=1e-7)


@EVERY
def test_the_order_of_the_elements_changes_nothing(transformer):
    sets = draw_sets()
    fitted = clone(transformer).fit(sets)
    np.testing.assert_allclose(fitted.transform([one[::-1] for one in sets]), fitted.transform(sets), atol=1e-6)


@EVERY
def test_an_element_of_weight_w_counts_as_w_copies(transformer):
    sets = draw_sets()
    counts = [np.random.default_rng(7).integers(0, 4, size=len(one)) + (np.arange(len(one)) == 0) for one in sets]
    weighted = [np.column_stack([one, count]) for one, count in zip(sets, counts, strict=True)]
    repeated = [np.repeat(one, count, axis=0) for one, count in zip(sets, counts, strict=True)]
    options = {"statistics": [name for name in STATISTICS if name != "quantiles"]}
    plain = clone(transformer).set_params(**(options if isinstance(transformer, SetStatistics) else {})).fit(sets)
    by_weight = clone(plain).set_params(weight_column=-1)
    by_weight.__dict__.update({name: value for name, value in vars(plain).items() if name.endswith("_")})
    np.testing.assert_allclose(by_weight.transform(weighted), plain.transform(repeated), atol=1e-6)


def test_quantiles_with_equal_weights_are_those_without():
    (elements,) = draw_sets(1)
    plain = SetStatistics(("quantiles",)).fit_transform([elements])
    weighted = np.column_stack([elements, np.full(len(elements), 2.5)])
    np.testing.assert_allclose(SetStatistics(("quantiles",), weight_column=3).fit_transform([weighted]), plain)


def test_the_inner_product_of_mean_embeddings_is_the_set_kernel():
    sets = draw_sets(4)
    embedding = SetMeanEmbedding(20_000, gamma=0.3, random_state=0).fit(sets)
    standardized = [(one - embedding.mean_) / embedding.scale_ for one in sets]
    kernel = np.array(
        [[np.exp(-0.3 * ((a[:, None] - b) ** 2).sum(axis=-1)).mean() for b in standardized] for a in standardized]
    )
    scale = np.sqrt(np.diagonal(kernel))
    vectors = embedding.transform(sets)
    np.testing.assert_allclose(vectors @ vectors.T, kernel / np.outer(scale, scale), atol=0.03)


def test_one_element_can_raise_the_similarity_to_a_word_and_none_can_lower_it():
    sets = draw_sets(20)
    vocabulary = SetVocabulary(5, random_state=0).fit(sets)
    before = vocabulary.transform(sets[:1])[0, :5]
    word = vocabulary.words_[2] * vocabulary.scale_ + vocabulary.mean_
    after = vocabulary.transform([np.vstack([sets[0], word])])[0, :5]
    assert (after >= before - 1e-6).all()
    assert after[2] == pytest.approx(1, abs=1e-4)


@EVERY
def test_every_column_has_a_name(transformer):
    frame = pandas.DataFrame(np.concatenate(draw_sets(3)), columns=["a", "b", "c"])
    frame["bag"] = np.arange(len(frame)) % 3
    fitted = clone(transformer).set_params(set_column="bag").fit(frame)
    names = fitted.get_feature_names_out()
    assert len(set(names)) == len(names) == fitted.transform(frame).shape[1]
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]


def test_two_lines_of_scikit_learn_classify_sets():
    labels = np.arange(40) % 2
    sets = [one + label for one, label in zip(draw_sets(40), labels, strict=True)]
    search = GridSearchCV(
        make_pipeline(SetStatistics(), SVC()), {"setstatistics__statistics": [("mean",), ("max",)]}, cv=2
    )
    assert search.fit(sets, labels).score(sets, labels) > 0.6


def test_every_form_of_the_same_sets_gives_the_same_vectors(tmp_path):
    sets = draw_sets(4)
    owners = np.repeat([f"bag {index}" for index in (2, 0, 3, 1)], [len(one) for one in sets])
    columns = {name: np.concatenate(sets)[:, index] for index, name in enumerate("abc")}
    for index, one in enumerate(sets):
        np.save(tmp_path / f"{index}.npy", one)
        table = pyarrow.table({name: one[:, column] for column, name in enumerate("abc")})
        pyarrow.parquet.write_table(table, tmp_path / f"{index}.parquet")
    forms = [
        SetBatch.from_list([torch.as_tensor(one) for one in sets]),
        [torch.as_tensor(one) for one in sets],
        [one.tolist() for one in sets],
        [str(tmp_path / f"{index}.npy") for index in range(4)],
        [tmp_path / f"{index}.parquet" for index in range(4)],
        pandas.DataFrame({"bag": owners, **columns}),
        polars.DataFrame({"bag": owners, **columns}),
    ]
    expected = SetStatistics().fit_transform(sets)
    for form in forms:
        np.testing.assert_allclose(SetStatistics(set_column="bag").fit_transform(form), expected, rtol=1e-6)


def test_a_sample_prefers_elements_of_large_weight_and_has_none_of_weight_zero():
    weights = np.array([0.0, 1.0, 1.0, 1000.0])
    read = read_set_list([np.column_stack([np.arange(4.0), weights])], caller="test", weight_column=1)
    drawn = [sample_elements(read, 0, 1, np.random.default_rng(seed))[0, 0] for seed in range(20)]
    assert drawn.count(3.0) > 17
    assert sorted(sample_elements(read, 0, 9, np.random.default_rng(0))[:, 0]) == [1, 2, 3]


FRAME = pandas.DataFrame({"bag": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "w": [1.0, 0.5, -1.0]})


@pytest.mark.parametrize(
    ("options", "sets", "message"),
    [
        ({}, FRAME, r"a data frame needs set_column.*set_column is None. Its columns are bag, x, w"),
        ({"set_column": "sack"}, FRAME, "there is no column 'sack'"),
        ({"set_column": "bag"}, FRAME.assign(name="text"), "column 'name' of the data frame is not numeric; drop it"),
        ({"set_column": "bag"}, FRAME[["bag"]], "the data frame has no columns of features"),
        ({"set_column": "bag"}, FRAME[:0], "the data frame has no rows"),
        ({"set_column": "bag", "weight_column": "v"}, FRAME, "no column 'v' for the weights; the columns are x, w"),
        ({"weight_column": "v"}, [[[1.0, 2.0]]], "no column 'v' for the weights; the sets have no column names"),
        ({"weight_column": 2}, [[[1.0, 2.0]]], "weight_column must be between -2 and 1; got 2"),
        ({"weight_column": 0}, [[[1.0]]], "no column other than that of the weights, 0"),
        ({}, ["bag.txt"], r"the file of set 0 must end in .npy or .parquet; got 'bag.txt'"),
        ({}, ["missing.npy"], "the file of set 0 does not exist: missing.npy"),
        ({}, "bags", "expected a list of arrays, one for each set; got a str"),
        ({"statistics": ("mode",)}, [[[1.0]]], "statistics must be one of 'mean', .*; got 'mode'"),
        ({"quantiles": (2,)}, [[[1.0]]], r"quantiles must be between 0 and 1; got \(2,\)"),
    ],
)
@pytest.mark.as_installed
def test_sets_that_cannot_be_read_are_refused(options, sets, message):
    with pytest.raises(ValueError, match=message):
        SetStatistics(**options).fit(sets)


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="weights of elements must not be negative or missing; set 1 has -1"):
        SetStatistics(set_column="bag", weight_column="w").fit_transform(FRAME)


def test_infinity_in_a_file_is_refused_with_its_place(tmp_path):
    np.save(tmp_path / "bag.npy", np.array([[1.0], [np.inf]]))
    with pytest.raises(ValueError, match="numbers must be finite; set 0 has inf in row 1, column 0"):
        SetStatistics().fit_transform([tmp_path / "bag.npy"])


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (SetMeanEmbedding(0), "n_components must be at least 1; got 0"),
        (SetMeanEmbedding(gamma=-1.0), re.escape("gamma must be above 0; got -1.0")),
        (SetVocabulary(0), "n_words must be at least 1; got 0"),
    ],
)
@pytest.mark.as_installed
def test_parameters_that_make_no_sense_are_refused(transformer, message):
    with pytest.raises(ValueError, match=message):
        transformer.fit(draw_sets())


def test_a_data_frame_with_other_columns_than_in_fit_is_refused():
    fitted = SetStatistics(set_column="bag").fit(FRAME)
    with pytest.raises(ValueError, match="must have the columns of fit in the same order, x, w; got w, x"):
        fitted.transform(FRAME[["bag", "w", "x"]])
    with pytest.raises(ValueError, match="sets must have 2 columns, as in fit; got 1"):
        fitted.transform(FRAME[["bag", "w"]])


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path):
    np.save(tmp_path / "bag.npy", np.zeros((100, 3), dtype=np.float32))
    (one,) = read_set_list([tmp_path / "bag.npy"], caller="test").sets
    assert not isinstance(one, np.ndarray)
    assert (len(one), one.shape) == (100, (100, 3))
