"""Tables: what is read, and what is refused, with the place where it stands."""

from pathlib import Path

import numpy as np
import pytest

from picaset.tables.table import read_table


def write(tmp_path: Path, text: str, name: str = "points.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_header_and_any_usual_delimiter_are_recognised(tmp_path, delimiter, newline):
    rows = [["x", "y", "who"], ["1.5", "-2e3", "a b"], ["3", "4", "c"]]
    table = read_table(write(tmp_path, newline.join(delimiter.join(row) for row in rows) + newline))
    assert list(table.columns) == ["x", "y", "who"]
    np.testing.assert_array_equal(table.numbers(["x", "y"]), [[1.5, -2000.0], [3.0, 4.0]])
    assert table.column("who").tolist() == ["a b", "c"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1 2\n3 4\n", [[1, 2], [3, 4]]),
        ("  1.5   -2 \n\n 3 4\n", [[1.5, -2], [3, 4]]),
        ("east north\n1 2\n3 nan\n", [[1, 2], [3, np.nan]]),
        ("1,5;2,5\n3;-0,25\n", [[1.5, 2.5], [3, -0.25]]),
        ("x;y\n1;2\n3,5;4e1\n;,5e1\n", [[1, 2], [3.5, 40], [np.nan, 5]]),
    ],
)
def test_spaces_may_separate_numbers_and_commas_be_decimal_where_semicolons_do(tmp_path, text, values):
    table = read_table(write(tmp_path, text, "points.txt"))
    np.testing.assert_array_equal(table.numbers(list(table.columns)), values)


def test_words_in_one_column_are_not_separated_and_a_comma_beside_points_is_not_decimal(tmp_path):
    table = read_table(write(tmp_path, "length in m\n1.5\n2\n"))
    assert table.numbers(["length in m"]).tolist() == [[1.5], [2]]
    table = read_table(write(tmp_path, "a name\nJohn Smith\nJane Doe\n"))
    assert table.column("a name").tolist() == ["John Smith", "Jane Doe"]
    with pytest.raises(ValueError, match="line 3: column y has '1,23', which is not a number"):
        read_table(write(tmp_path, "x;y\n1;2.5\n1;1,23\n")).numbers(["y"])


def test_without_a_header_columns_are_numbered(tmp_path):
    table = read_table(write(tmp_path, "1,2\n3,4\n"))
    assert list(table.columns) == ["column1", "column2"]
    np.testing.assert_array_equal(table.numbers(["column2"]), [[2.0], [4.0]])


def test_a_byte_order_mark_quotes_and_blank_lines_do_not_matter(tmp_path):
    table = read_table(write(tmp_path, '\ufeff"x","y, z"\n\n1,2\n  \n3,4\n\n'))
    assert list(table.columns) == ["x", "y, z"]
    assert table.num_rows == 2


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", " "])
def test_missing_values_are_found(tmp_path, missing):
    table = read_table(write(tmp_path, f"x,y\n1,2\n{missing},4\n"))
    np.testing.assert_array_equal(table.is_missing("x"), [False, True])
    np.testing.assert_array_equal(table.numbers(["x"]), [[1.0], [np.nan]])


def test_numpy_and_parquet_files_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    np.save(tmp_path / "points.npy", np.array([[1, 2], [3, 4]]))
    np.testing.assert_array_equal(
        read_table(tmp_path / "points.npy").numbers(["column1", "column2"]), [[1.0, 2.0], [3.0, 4.0]]
    )
    parquet.write_table(pyarrow.table({"x": [1.0, None], "who": ["a", None]}), tmp_path / "points.parquet")
    table = read_table(tmp_path / "points.parquet")
    np.testing.assert_array_equal(table.is_missing("x"), [False, True])
    np.testing.assert_array_equal(table.is_missing("who"), [False, True])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("x,y\n", "has no rows"),
        ("x,y\n1,2\n\n1,2,3\n", "line 4: expected 2 values; got 3"),
        ("x,x\n1,2\n", "line 1: column 2 must have a unique name; got 'x'"),
        ('x,y\n1,"2\n', "is not CSV"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text))


@pytest.mark.parametrize(
    ("value", "message"),
    [("many", "line 4: column x has 'many', which is not a number"), ("inf", "'inf', which is not finite")],
)
def test_a_value_that_is_no_number_is_refused_with_its_line(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, f"x,y\n1,2\n\n{value},4\n")).numbers(["x"])


def test_an_unknown_column_is_refused_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match="has no column 'z'; its columns are x, y"):
        read_table(write(tmp_path, "x,y\n1,2\n")).numbers(["z"])


def test_an_unknown_suffix_a_missing_file_and_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in one of .csv, .*; got '.xls'"):
        read_table(tmp_path / "points.xls")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_table(tmp_path / "points.csv")
    (tmp_path / "points.csv").write_bytes(b"x,y\n1,\x81\n")
    with pytest.raises(ValueError, match="is not text in UTF-8 or Windows-1252"):
        read_table(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="is not text: it has a zero byte"):
        read_table(write(tmp_path, "x,y\n1,\0\n"))
    with pytest.raises(ValueError, match="is not a complete Parquet file"):
        read_table(write(tmp_path, "x,y\n1,2\n", "points.parquet"))
    with pytest.raises(ValueError, match="is not a complete .npy file of numbers"):
        read_table(write(tmp_path, "x,y\n1,2\n", "points.npy"))
    np.save(tmp_path / "line.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold numbers of shape \(rows, columns\); got float64 of \(3,\)"):
        read_table(tmp_path / "line.npy")
    np.save(tmp_path / "objects.npy", np.array([[{"a": 1}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="must hold numbers of shape"):
        read_table(tmp_path / "objects.npy")
