"""Hostile table and array files: accepted or refused with a clear error, quickly, whatever their bytes claim."""

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from picaset import MeanPool, PicasoPool, stream
from picaset.array_files import read_npy_header, read_safetensors_header
from picaset.large.large_set import Reading
from picaset.large.sources import from_parquet, open_source
from picaset.tables import table as tables
from picaset.tables.table import open_large_table, read_table


def npy_with_header(text: str) -> bytes:
    header = text.encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(800)


def npy_of(shape: str, dtype: str = "<f8") -> bytes:
    return npy_with_header(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}")


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, points=np.zeros((3, 2)))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy_of("(1000000000, 4)"), "claims shape .* 32,000,000,000 bytes; the file has 800"),
        (npy_of("(4, 1000000000)"), "claims shape .* 32,000,000,000 bytes; the file has 800"),
        (npy_of("(1000000000, 0)"), r"must hold numbers of shape \(rows, columns\); got float64 of \(1000000000, 0\)"),
        (npy_of("(True, 4)"), "must hold numbers of shape"),
        (npy_of("(-3, 4)"), "must hold numbers of shape"),
        (npy_of("(3, 4", "<f8"), r"is not a complete .npy file of numbers \(damaged header\)"),
        (npy_of("(3, 4)", "<c16"), "must hold numbers of shape .* got complex128"),
        (npy_with_header("(" * 9000), "is not a complete .npy file of numbers"),
        (zipped(), "it is a zip archive: take an array out of the .npz"),
    ],
)
def test_an_npy_that_claims_what_it_does_not_have_is_refused_by_all_readers(tmp_path, data, message):
    path = tmp_path / "points.npy"
    path.write_bytes(data)
    for reader in (read_npy_header, read_table, open_large_table, open_source):
        with pytest.raises(ValueError, match=message):
            reader(path)


@pytest.mark.parametrize("name", ["points.csv", "points.jsonl", "points.npy", "points.parquet", "points.safetensors"])
def test_a_device_in_the_place_of_a_file_is_not_read(tmp_path, name):
    """Nor is a pipe; a device does not make the test wait if it is read."""
    path = tmp_path / name
    path.symlink_to("/dev/null")
    of_tables = [] if name.endswith("safetensors") else [read_table, open_large_table]
    of_arrays = [open_source] if name.endswith(("npy", "parquet", "safetensors")) else []
    for reader in (*of_tables, *of_arrays):
        with pytest.raises(ValueError, match=f"{name} must be a file; it is a folder, a pipe or a device"):
            reader(path)


def test_more_columns_than_can_be_used_are_refused(tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((1, 20_000)))
    (tmp_path / "wide.csv").write_text(",".join(["1"] * 100_000) + "\n")
    (tmp_path / "wide.jsonl").write_text(json.dumps(dict.fromkeys(map(str, range(20_000)), 1)))
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match=r"columns(; at most 10,000 can be used|, which is the most)"):
            read_table(path)
    assert open_source(tmp_path / "wide.npy").width == 20_000


def test_a_source_of_many_columns_is_read_in_chunks_of_bounded_size(tmp_path):
    """Sparse files: they claim what they have, and take no space on the disk."""
    path, shape = tmp_path / "wide.npy", (40, 10_000_000)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 4 * shape[0] * shape[1])
    chunks = list[tuple[int, ...]]()

    def see(elements: torch.Tensor) -> torch.Tensor:
        chunks.append(tuple(elements.shape))
        return elements[..., :2]

    with pytest.raises(ValueError, match=r"elements must have 4 features; those of .* have 10000000\."):
        stream(PicasoPool(4, num_templates=1, num_heads=2), path)
    with pytest.raises(ValueError, match=r"elements must have 4 features; those of .* have 2 after the transform"):
        stream(PicasoPool(4, num_templates=1, num_heads=2), path, transform=see)
    assert chunks == [(1, 6, shape[1])]
    narrow = torch.randn(5, 3)
    np.save(path, narrow.numpy())
    assert Reading.for_operator(MeanPool(), open_source(path), chunk=None, caller="", spill="never").size == 2**17


@pytest.mark.parametrize("columns", [{"x": [1.0, 2.0], "name": ["a", "b"]}, {"name": ["1", "2"]}])
def test_text_columns_cannot_be_streamed(tmp_path, columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "points.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(
        ValueError, match=r"column 'name' of .*points\.parquet must hold numbers\. Choose others by from_p"
    ):
        stream(MeanPool(), path)
    if "x" in columns:
        assert stream(MeanPool(), from_parquet(path, columns=["x"])).tolist() == [[[1.5]]]
    np.save(tmp_path / "text.npy", np.array([["a"], ["b"]]))
    with pytest.raises(ValueError, match=r"text\.npy must hold numbers of shape"):
        stream(MeanPool(), tmp_path / "text.npy")


def safetensors_of(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {"shape": [2, 4], "data_offsets": [0, 64]}}, r"must have dtype \(text\), shape"),
        ({"a": {"dtype": "F64", "shape": [2, 4]}}, "must have dtype .* data_offsets"),
        ({"a": 3}, "must have dtype .* got 3"),
        ({"a": {"dtype": ["F64"], "shape": [2, 4], "data_offsets": [0, 64]}}, "must have dtype"),
        ({"a": {"dtype": "F64", "shape": [True, 8], "data_offsets": [0, 64]}}, "must have dtype"),
        ({"a": {"dtype": "F64", "shape": [-2, -4], "data_offsets": [0, 64]}}, "must have dtype"),
        ({"a": {"dtype": "F64", "shape": [1, 4], "data_offsets": [0, 64]}}, "is not a complete tensor"),
        ({"a": {"dtype": "F64", "shape": [10**9, 10**9], "data_offsets": [0, 64]}}, "is not a complete tensor"),
        ({"a": {"dtype": "F64", "shape": [2, 4], "data_offsets": [8, 72]}}, "is not a complete tensor"),
        ([1, 2], "its header is not a JSON object"),
        (b"[" * 100_000, "its header is not JSON"),
    ],
)
def test_a_safetensors_header_that_does_not_fit_its_file_is_refused(tmp_path, header, message):
    path = tmp_path / "points.safetensors"
    path.write_bytes(safetensors_of(header))
    for reader in (read_safetensors_header, open_source):
        with pytest.raises(ValueError, match=message):
            reader(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("a", [1.0]), ("a", [2.0])], "every column must have its own name; 2 have the name 'a'"),
        ([], "has no columns"),
    ],
)
def test_parquet_without_its_own_name_for_every_column_is_refused_by_all_readers(tmp_path, columns, message):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrays, names = [pyarrow.array(values) for _, values in columns], [name for name, _ in columns]
    parquet.write_table(pyarrow.table(arrays, names=names), tmp_path / "points.parquet")
    for reader in (read_table, open_large_table, open_source):
        with pytest.raises(ValueError, match=message):
            reader(tmp_path / "points.parquet")


def test_parquet_without_rows_is_an_empty_source_and_no_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "points.parquet"
    parquet.write_table(pyarrow.table({"x": pyarrow.array([], pyarrow.float64())}), path)
    for reader in (read_table, open_large_table):
        with pytest.raises(ValueError, match="has no rows"):
            reader(path)
    assert open_source(path).count == 0


def test_parquet_that_unpacks_to_more_than_half_of_the_memory_is_streamed(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "points.parquet"
    parquet.write_table(pyarrow.table({"x": np.zeros(300_000), "y": np.zeros(300_000)}), path)
    assert path.stat().st_size < 10_000
    assert tables.fits_in_memory(path)
    monkeypatch.setattr(tables.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 2**10)
    assert not tables.fits_in_memory(path)
    with pytest.raises(ValueError, match=r"needs about 0\.0 GB, more than half of the memory"):
        read_table(path)
    assert open_large_table(path).num_rows == 300_000
    monkeypatch.setattr(tables.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(ValueError, match=r"has 300,000 rows, which need .* Set TMPDIR to another folder"):
        open_large_table(path)


@pytest.mark.parametrize("text", [",,\n,,\n", '"\n"\n', '" "\n'])
def test_a_file_of_blank_values_has_no_rows(tmp_path, text):
    (tmp_path / "points.csv").write_text(text)
    for reader in (read_table, open_large_table):
        with pytest.raises(ValueError, match=r"points\.csv has no rows: all its values are blank"):
            reader(tmp_path / "points.csv")


def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_UNPACKED", 2)
    path = tmp_path / "points.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 1_000_000))
    for reader in (read_table, open_large_table):
        with pytest.raises(ValueError, match="unpacks to more than 2,097,152 bytes, 2 times its size"):
            reader(path)
    path.write_bytes(gzip.compress(b"1,2\n3,4\n")[:-5])
    for reader in (read_table, open_large_table):
        with pytest.raises(ValueError, match="is not a complete gzip file"):
            reader(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"x": ' * 100_000, '{"x": 1}\n{"x": ' + "[" * 100_000])
def test_json_that_is_nested_deeply_is_refused(tmp_path, text):
    (tmp_path / "points.json").write_text(text)
    with pytest.raises(ValueError, match="is not JSON: it is nested too deeply"):
        read_table(tmp_path / "points.json")


def test_an_open_quote_does_not_take_the_rest_of_a_file_that_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_BYTES", 1000)
    monkeypatch.setattr("picaset.tables.csv_text.MAX_LINE_BYTES", 4000)
    (tmp_path / "points.csv").write_text('x,y\n1,"2\n' + "3,4\n" * 5000)
    with pytest.raises(ValueError, match=r"has a row of more than .* bytes; is a quote not closed"):
        open_large_table(tmp_path / "points.csv")


def test_an_array_of_numbers_that_torch_does_not_have_is_refused(tmp_path):
    np.save(tmp_path / "points.npy", np.zeros((3, 2), dtype=np.longdouble))
    with pytest.raises(ValueError, match="save it as float64"):
        open_source(tmp_path / "points.npy")


def test_readers_of_a_path_name_it(tmp_path):
    for name in ("points.npy", "points.parquet", "points.csv", "points.jsonl"):
        Path(tmp_path / name).write_bytes(b"\x81\0\xff")
        with pytest.raises(ValueError, match=name):
            read_table(tmp_path / name)
