"""Tables: what is read, and what is refused, with the place where it stands."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from picaset.tables import table as tables
from picaset.tables.table import Table, choose_columns, group_rows, open_large_table, read_table


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
    with pytest.raises(ValueError, match=r"is a folder; expected a file that ends in one of \.csv"):
        read_table(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_table(tmp_path / "points.csv")
    (tmp_path / "points.csv").write_bytes(b"x,y\n1,\x81\n")
    with pytest.raises(ValueError, match="is not text in UTF-8 or Windows-1252"):
        read_table(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="is not a text file: it contains a zero byte"):
        read_table(write(tmp_path, "x,y\n1,\0\n"))
    with pytest.raises(ValueError, match="is not a complete Parquet file"):
        read_table(write(tmp_path, "x,y\n1,2\n", "points.parquet"))
    with pytest.raises(ValueError, match=r"is not a complete \.npy file of numbers"):
        read_table(write(tmp_path, "x,y\n1,2\n", "points.npy"))
    np.save(tmp_path / "line.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold numbers of shape \(rows, columns\); got float64 of \(3,\)"):
        read_table(tmp_path / "line.npy")
    np.save(tmp_path / "objects.npy", np.array([[{"a": 1}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="must hold numbers of shape"):
        read_table(tmp_path / "objects.npy")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b",x,y\n0,1.5,2\n1,2.5,NA\n", "pandas.csv"),
        ("x,y\n1.5,2\n2.5,\n".encode("cp1252"), "windows.csv"),
        ("x,y\n1.5,2\n2.5,\n".encode("utf-16"), "utf16.csv"),
        (gzip.compress(b"x,y\n1.5,2\n2.5,\n", mtime=0), "packed.csv.gz"),
        (b"x\ty\n1.5\t2\n2.5\t\n", "tabs.tsv"),
        (b"x,y\r1.5,2\r2.5,#N/A\r", "old_mac.csv"),
        (b'{"x": 1.5, "y": 2}\n\n{"x": 2.5, "y": null}\n', "lines.jsonl"),
        (b'[{"x": 1.5, "y": 2},\n {"x": 2.5}]', "array.json"),
        (gzip.compress(b'{"x": 1.5, "y": 2}\n{"x": 2.5}\n', mtime=0), "lines.json.gz"),
    ],
)
def test_files_as_they_come_give_the_same_table(tmp_path, data, name):
    (tmp_path / name).write_bytes(data)
    names, _ = choose_columns(read_table(tmp_path / name))
    assert names == ["x", "y"]
    np.testing.assert_array_equal(read_table(tmp_path / name).numbers(names), [[1.5, 2], [2.5, np.nan]])
    large = open_large_table(tmp_path / name, drop_missing=True)
    assert (large.num_rows, large.num_dropped) == (1, 1)


def test_another_encoding_is_noted(tmp_path):
    (tmp_path / "points.csv").write_bytes("größe,name\n1,ä\n2,b\n".encode("cp1252"))
    table = read_table(tmp_path / "points.csv")
    assert table.column("name").tolist() == ["ä", "b"]
    assert table.numbers(["größe"]).tolist() == [[1], [2]]
    assert table.notes == [f"{tmp_path / 'points.csv'} is read as Windows-1252 text"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('x,y\n"1,234",2\n"12,345,678.5",3\n7,4\n', [1234, 12345678.5, 7]),
        ("x;y\n1.234,5;2\n7,25;3,5\n1.000;4\n", [1234.5, 7.25, 1000]),
    ],
)
def test_thousands_separators_are_removed_and_noted(tmp_path, text, values):
    table = read_table(write(tmp_path, text))
    assert table.numbers(["x"])[:, 0].tolist() == values
    assert "thousands separators as in 1" in table.notes[0]


def test_text_dates_ids_and_truth_values_are_left_out_with_a_note(tmp_path):
    header = "id,user_id,customerId,grid,x,when,name,ok,nothing\n"
    table = read_table(
        write(tmp_path, header + "1,7,3,4,.5,2021-01-01 10:00,a,True,\n2,7,4,5,.25,2021-01-02,b,False,\n")
    )
    names, notes = choose_columns(table)
    assert names == ["grid", "x"]
    assert notes == [
        "left out: id (ids), user_id (ids), customerId (ids), when (dates), name (text), ok (text), nothing (empty); "
        "choose columns with --columns"
    ]
    assert group_rows(table, set_column="name", hint="").notes == [notes[0].replace("name (text), ", "")]
    assert group_rows(table, columns=["id", "x"], set_column=None, hint="").points.tolist() == [[1, 0.5], [2, 0.25]]
    assert tables.choose_columns(table, exclude=("grid",))[0] == ["x"]
    assert tables.column_kind(Table(Path("a"), {"id": np.array([0.5])}, ["row 1"]), "id") == "numbers"
    assert tables.column_kind(Table(Path("a"), {"x": np.array([True])}, ["row 1"]), "x") == "true or false"


def test_a_missing_value_is_named_by_row_and_column(tmp_path):
    table = read_table(write(tmp_path, "s,x,y\na,1,2\n\na,3,\n,5,6\n"))
    message = r"points.csv, line 4: a value is missing in column y \(as in 2 of 3 rows\); fill it in\."
    with pytest.raises(ValueError, match=message):
        group_rows(table, set_column="s", hint="fill it in")
    with pytest.raises(ValueError, match="line 5: a value is missing in column s"):
        group_rows(table, columns=["x"], set_column="s", hint="fill it in")
    kept = group_rows(table, set_column="s", keep_missing=True, hint="")
    np.testing.assert_array_equal(kept.points, [[1, 2], [3, np.nan]])


def test_whole_numbers_name_sets_without_a_decimal_point(tmp_path):
    table = read_table(write(tmp_path, "s,x\n7,1\n,2\n8,3\n"))
    assert group_rows(table, set_column="s", drop_missing=True, hint="").names == ["7", "8"]


def test_blocks_of_any_size_are_read_as_the_whole_file(tmp_path, monkeypatch):
    rows = [f'{index / 7},"a, {index}\nb",{index}' for index in range(50)]
    path = write(tmp_path, "x,text,y\n" + "\n".join(rows) + "\n")
    expected = read_table(path).numbers(["x", "y"])
    for size in (1, 30, 100, 10_000):
        monkeypatch.setattr(tables, "CHUNK_BYTES", size)
        large = open_large_table(path)
        np.testing.assert_array_equal(np.concatenate(list(large.chunks())), expected)
        assert list(large.columns) == ["x", "y"]


def test_a_mistake_in_a_later_block_is_named_by_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_BYTES", 20)
    rows = [f"{index},{index}" for index in range(40)]
    for wrong, message in (
        ("1,oops", "line 32: column y has 'oops', which is not a number"),
        ("1,2,3", "line 32: expected 2"),
    ):
        path = write(tmp_path, "x,y\n" + "\n".join([*rows[:30], wrong, *rows[30:]]) + "\n")
        with pytest.raises(ValueError, match=message):
            open_large_table(path)
    path = write(tmp_path, "x,y\n" + "\n".join([*rows[:30], "1,  ", *rows[30:]]) + "\n")
    assert open_large_table(path, drop_missing=True).num_dropped == 1


def test_rows_are_written_as_they_were_read(tmp_path):
    table = read_table(write(tmp_path, 'code;x\n007;1,50\n"a;b";2,25\n'))
    table.write_csv(tmp_path / "out.csv", {"label": ["0", "1"]})
    assert (tmp_path / "out.csv").read_text() == "code,x,label\n007,1.50,0\na;b,2.25,1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": 1}\n{oops}\n', "line 2 is not JSON"),
        ('{"x": 1}\n3\n', "line 2: must be a JSON object"),
        ("[1, 2]", "row 1"),
    ],
)
def test_records_that_are_no_objects_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text, "points.jsonl"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("points.jsonl", '{"x": "1.5", "y": 3, "who": "a"}\n{"x": "2", "y": "n/a", "who": "b"}\n'),
        ("points.json", '[{"x": "1.5", "y": "3", "who": "a"}, {"x": 2, "y": null, "who": "b"}]'),
    ],
)
def test_numbers_written_as_text_are_numbers(tmp_path, name, text):
    table = read_table(write(tmp_path, text, name))
    assert choose_columns(table) == (["x", "y"], ["left out: who (text); choose columns with --columns"])
    np.testing.assert_array_equal(table.numbers(["x", "y"]), [[1.5, 3], [2, np.nan]])


def test_numbers_as_text_in_parquet_are_numbers_and_ids_stay_ids(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"x": ["1.5", None], "user_id": ["1", "2"], "when": ["2021-01-01", "2021-01-02"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "points.parquet")
    table = read_table(tmp_path / "points.parquet")
    assert choose_columns(table)[0] == ["x"]
    assert [tables.column_kind(table, name) for name in columns] == ["numbers", "ids", "dates"]
    np.testing.assert_array_equal(group_rows(table, set_column=None, keep_missing=True, hint="").points, [[1.5]])
    np.testing.assert_array_equal(
        np.concatenate(list(open_large_table(tmp_path / "points.parquet", drop_missing=True).chunks())), [[1.5]]
    )


def test_a_word_among_numbers_written_as_text_is_refused_with_its_line(tmp_path):
    table = read_table(write(tmp_path, '{"x": "1.5"}\n{"x": "2"}\n{"x": "many"}\n', "points.jsonl"))
    with pytest.raises(ValueError, match="line 3: column x has 'many', which is not a number"):
        choose_columns(table)


@pytest.mark.parametrize(
    "text",
    [
        '{"x":{"0":1,"1":3},"y":{"0":2,"1":4}}',
        '{\n  "x": {"0": 1, "1": 3},\n  "y": {"0": 2, "1": 4}\n}\n',
        '{"0":{"x":1,"y":2},"1":{"x":3,"y":4}}\n',
        '{"x":[1,3],"y":[2,4]}\n',
    ],
)
def test_json_with_one_object_of_columns_is_read_as_pandas_writes_it(tmp_path, text):
    table = read_table(write(tmp_path, text, "points.json"))
    assert list(table.columns) == ["x", "y"]
    np.testing.assert_array_equal(table.numbers(["x", "y"]), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "text",
    [
        '{"columns":["x","y"],"index":[0,1],"data":[[1,2],[3,4]]}',
        '{"x":{"0":1},"y":{"0":2,"1":4}}',
        '{"x":[1,3],"y":[2,4]}\n{"x":[1,3],"y":[2,4]}\n',
    ],
)
def test_json_of_lists_that_are_no_columns_is_refused_with_what_pandas_should_write(tmp_path, text):
    with pytest.raises(ValueError, match=r'one JSON object for each row.*orient="records"'):
        read_table(write(tmp_path, text, "points.json"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("# measured in May\nx,y\n1,2\n3,4\n", ["x", "y"]),
        ("# measured, in May\n\n# by hand\nx,y\n1,2\n3,4\n", ["x", "y"]),
        ("# measured, in May\nx,y\n1,2\n3,4\n", ["x", "y"]),
        ("# x,y\n1,2\n3,4\n", ["x", "y"]),
        ("# made by NumPy\n# x y\n1.0 2.0\n3.0 4.0\n", ["x", "y"]),
        ("#measured in May\n1,2\n3,4\n", ["column1", "column2"]),
        ("#,x\n1,2\n3,4\n", ["#", "x"]),
    ],
)
def test_comments_before_the_header_are_skipped_and_may_have_the_names(tmp_path, text, names):
    table = read_table(write(tmp_path, text))
    assert list(table.columns) == names
    np.testing.assert_array_equal(table.numbers(names), [[1, 2], [3, 4]])
    assert table.locations[1] == f"line {text.count(chr(10))}"
    assert bool(table.notes) == ("May" in text or "NumPy" in text)


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;", "\nsep=;", "sep=;\r"])
def test_the_line_that_tells_excel_the_delimiter_is_skipped(tmp_path, first):
    table = read_table(write(tmp_path, f"{first}\nx;y\n1,5;2\n3;4\n"))
    assert list(table.columns) == ["x", "y"]
    np.testing.assert_array_equal(table.numbers(["x", "y"]), [[1.5, 2], [3, 4]])
    assert table.locations[1] == f"line {first.count(chr(10)) + 4}"


def test_names_of_a_text_table_may_begin_with_a_number_sign(tmp_path):
    table = read_table(write(tmp_path, "#name,city\nBob,Paris\nAnn,Oslo\n"))
    assert list(table.columns) == ["name", "city"]
    assert table.num_rows == 2


def test_a_trailing_delimiter_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"line 2: expected 2 values; got 3\. Remove the ',' at the end"):
        read_table(write(tmp_path, "x,y\n1,2,\n3,4,\n"))
    table = read_table(write(tmp_path, "x,y,\n1,2,\n3,4,\n"))
    assert choose_columns(table)[0] == ["x", "y"]
