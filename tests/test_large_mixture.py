"""Mixtures of sets that are never held: the same as of the whole set, from any source, and what cannot be."""

import csv
import errno
import io
import json

import numpy as np
import pytest
import torch

from picaset import AmortizedMixture
from picaset.cli import main
from picaset.estimators import large_mixture
from picaset.estimators.large_mixture import draw_sample, open_points
from picaset.tables import table as large_table
from picaset.tables.table import open_large_table
from picaset.terminal import Watcher


@pytest.fixture
def points() -> np.ndarray:
    """Three clusters of which two overlap, far from the origin."""
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 6.0]])
    return 1000 + 5 * (middles[random.choice(3, size=3000, p=[0.5, 0.3, 0.2])] + random.normal(0, 0.6, (3000, 2)))


@pytest.fixture
def small_sample(monkeypatch):
    """Make the sample small, so that the fit to the sample differs from the fit to all points."""
    monkeypatch.setattr(large_mixture, "SAMPLE_SIZE", 300)


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "tied", "full"])
@pytest.mark.parametrize("chunk", [400, 3000])
def test_a_set_in_chunks_is_fitted_as_the_whole_set(points, small_sample, covariance_type, chunk):
    options = dict(n_components=3, covariance_type=covariance_type, tol=1e-9, max_iter=500, random_state=0)
    whole = AmortizedMixture(**options).fit(points)
    streamed = AmortizedMixture(**options).fit_stream(points, chunk=chunk)
    assert streamed.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-6)
    assert streamed.lower_bound_ == pytest.approx(streamed.score(points), abs=1e-9)
    np.testing.assert_allclose(streamed.means_, whole.means_, atol=0.05)
    np.testing.assert_allclose(streamed.weights_, whole.weights_, atol=0.005)
    np.testing.assert_allclose(streamed.covariances_, whole.covariances_, rtol=0.02)
    assert streamed.converged_


def test_noise_in_chunks_is_fitted_as_in_the_whole_set(points, small_sample):
    random = np.random.default_rng(1)
    noisy = np.concatenate([points, random.uniform(points.min(axis=0), points.max(axis=0), (300, 2))])
    options = dict(n_components=3, covariance_type="full", noise=True, tol=1e-9, max_iter=300, random_state=0)
    whole = AmortizedMixture(**options).fit(noisy)
    streamed = AmortizedMixture(**options).fit_stream(noisy, chunk=400)
    assert streamed.noise_weight_ == pytest.approx(whole.noise_weight_, abs=0.005)
    assert streamed.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-4)
    assert streamed.lower_bound_ == pytest.approx(streamed.score(noisy), abs=1e-9)


def test_every_pass_over_all_points_makes_them_more_likely(points, small_sample):
    likelihoods = [
        AmortizedMixture(3, max_iter=steps, tol=1e-12, random_state=0).fit_stream(points).score(points)
        for steps in (1, 3, 10, 40)
    ]
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[-1] > likelihoods[0]


def test_any_source_and_chunk_give_the_same_mixture(points, small_sample, tmp_path):
    np.save(tmp_path / "points.npy", points)
    sources = [points, tmp_path / "points.npy", torch.as_tensor(points), lambda: iter(np.array_split(points, 7))]
    first, *others = (AmortizedMixture(3, random_state=0).fit_stream(source, chunk=500) for source in sources)
    for other in others:
        np.testing.assert_allclose(other.means_, first.means_, rtol=1e-12)


def test_the_sample_is_drawn_evenly_from_all_chunks(small_sample):
    values = torch.arange(2000.0)[:, None]
    sample, count, box = draw_sample(
        open_points(values, chunk=130, watcher=Watcher()), torch.Generator().manual_seed(0)
    )
    assert count == 2000
    assert box.flatten().tolist() == [0.0, 1999.0]
    assert len(sample.unique()) == len(sample) == 300
    quarters = torch.histc(sample, bins=4, min=0, max=2000)
    assert 40 < quarters.min() <= quarters.max() < 115


def test_the_number_of_components_is_found(points, monkeypatch):
    monkeypatch.setattr(large_mixture, "SAMPLE_SIZE", 1000)
    assert AmortizedMixture("auto", random_state=0).fit_stream(points).n_components_ == 3


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_points_that_are_not_finite_are_refused(points, wrong):
    points[2000, 1] = wrong
    with pytest.raises(ValueError, match="points must be finite; got NaN or infinity"):
        AmortizedMixture(3).fit_stream(points, chunk=100)


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
def test_a_file_in_chunks_is_clustered_as_the_table(points, small_sample, tmp_path, capsys, monkeypatch, suffix):
    monkeypatch.setattr(large_table, "CHUNK_ROWS", 400)
    path = tmp_path / f"points.{suffix}"
    if suffix == "csv":
        np.savetxt(path, points, delimiter=",", header="x,y", comments="")
    elif suffix == "npy":
        np.save(path, points)
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"x": points[:, 0], "y": points[:, 1]}), path)
    arguments = ["cluster", str(path), "--components", "3", "--json"]
    found = list[list[dict[str, float]]]()
    written = ["--labels", str(tmp_path / "labels.csv"), "--plot", str(tmp_path / "points.png")]
    for more in ([], ["--in-chunks", *written]):
        assert main([*arguments, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["mixtures"])
    for whole, streamed in zip(*found, strict=True):
        assert streamed["points"] == whole["points"] == 3000
        assert streamed["weight"] == pytest.approx(whole["weight"], abs=0.05)
        assert streamed["log-likelihood of the set"] == pytest.approx(whole["log-likelihood of the set"], abs=3e-3)
    with (tmp_path / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3000
    far = [row for row in rows if float(list(row.values())[1]) > 1020]
    assert {row["component"] for row in far} == {"2"}  # the smallest
    assert (tmp_path / "points.png").stat().st_size > 1000


def test_a_file_too_large_for_memory_is_read_in_chunks_by_itself(points, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "points.npy", points)
    monkeypatch.setattr(large_table.os, "sysconf", lambda name: 100)
    assert not large_table.fits_in_memory(tmp_path / "points.npy")
    monkeypatch.setattr("picaset.cli.cluster.read_table", lambda path: pytest.fail("the whole table was read"))
    assert main(["cluster", str(tmp_path / "points.npy"), "--components", "3"]) == 0
    assert "3000 points in 1 set" in capsys.readouterr().out


@pytest.mark.parametrize("option", [["--set", "x"], ["--compare"]])
def test_what_needs_the_whole_table_is_refused(points, tmp_path, capsys, option):
    np.save(tmp_path / "points.npy", points)
    assert main(["cluster", str(tmp_path / "points.npy"), "--in-chunks", *option]) == 1
    assert f"{option[0]} needs the whole table in memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3,4\n5,oops\n", "line 4: column y has 'oops', which is not a number."),
        ("x,y\n1,2\n3,4\n5\n", "line 4: expected 2 values; got 1."),
        ("x,y\n1,2\n3,4\n5,\n", "line 4: a value is missing"),
        ("x,y\n", "has no rows."),
        ("x,y\n,\n,1\n", "line 3: a value is missing"),
    ],
)
def test_a_mistake_far_down_in_a_file_is_reported_with_its_line(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(large_table, "CHUNK_ROWS", 2)
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        open_large_table(tmp_path / "points.csv", ["x", "y"])


def test_rows_with_missing_values_are_left_out_and_counted(tmp_path):
    (tmp_path / "points.csv").write_text("x,y\n1,2\n,3\n3,4\n")
    table = open_large_table(tmp_path / "points.csv", drop_missing=True)
    assert (table.num_rows, table.num_dropped) == (2, 1)
    assert [chunk.tolist() for chunk in table.chunks()] == [[[1.0, 2.0], [3.0, 4.0]]]


@pytest.mark.as_installed  # what stands in for a file is none to the shape checks
def test_a_full_disk_is_reported_and_no_file_is_left(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "points.csv").write_text("1,2\n3,4\n")
    monkeypatch.setattr(large_table.tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match=r"No space left on device\); the temporary file was removed\. Set TMPDIR"):
        open_large_table(tmp_path / "points.csv")
