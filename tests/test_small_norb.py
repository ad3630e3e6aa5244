"""smallNORB: its original files, its compact form, and what a damaged file may lead to."""

import gzip
import os
import random
import resource
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from picaset.lab.data.folders import cache_folder, data_root, use_data_root
from picaset.lab.data.small_norb import downsampled, has_small_norb, load_small_norb, read_integers, read_original
from picaset.lab.data.views import LABELS, TRAINING_INSTANCES, Views, read_views, write_views
from tests.norb_files import STEMS, bytes_of, small_half, write_half

REAL = Path(os.environ.get("PICASET_DATA", "/nowhere")) / "smallnorb"
FILES = small_half("training")


@pytest.fixture
def folder(tmp_path) -> Path:
    write_half(tmp_path / "smallnorb", "training", FILES)
    return tmp_path / "smallnorb"


def same(one: Views, other: Views) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("images", *LABELS))


def test_original_files_are_read_as_they_were_written(folder):
    views = read_original(folder, "training")
    written = np.frombuffer(FILES["dat"][24:], dtype=np.uint8).reshape(4, 2, 48, 2, 48, 2).astype(float)
    assert np.abs(views.images.numpy() - written.mean(axis=(3, 5))).max() <= 0.5
    assert [getattr(views, name).tolist() for name in LABELS] == [
        [0] * 4, [7] * 4, [0, 0, 5, 5], [0, 6, 0, 6], [2] * 4,
    ]  # fmt: skip


def test_compressed_files_are_the_same_under_either_name(folder, tmp_path):
    expected = read_original(folder, "training")
    write_half(tmp_path / "gz", "training", FILES, compress=True)
    assert same(read_original(tmp_path / "gz", "training"), expected)
    for path in (tmp_path / "gz").iterdir():
        path.rename(path.with_suffix(""))
    assert same(read_original(tmp_path / "gz", "training"), expected)


def test_the_compact_file_returns_the_stored_data(folder, tmp_path):
    views = read_original(folder, "training")
    write_views(tmp_path / "views.npz", views)
    assert same(read_views(tmp_path / "views.npz", TRAINING_INSTANCES), views)


def test_original_files_are_read_once_and_kept_in_compact_form(folder, tmp_path):
    write_half(folder, "testing", small_half("testing"))
    assert has_small_norb(tmp_path)
    first = load_small_norb(tmp_path)
    for path in folder.glob("*.mat"):
        path.unlink()
    assert has_small_norb(tmp_path)
    assert all(same(one, other) for one, other in zip(load_small_norb(tmp_path), first, strict=True))


def test_originals_in_a_folder_for_reading_only_are_read_all_the_same(folder, tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr("picaset.lab.data.small_norb.write_views", refused)
    write_half(folder, "testing", small_half("testing"))
    assert [len(half) for half in load_small_norb(tmp_path)] == [4, 4]


@pytest.mark.skipif(not REAL.is_dir(), reason="PICASET_DATA has no smallnorb folder")
@pytest.mark.parametrize("half", STEMS)
def test_the_labels_of_the_real_data_are_those_of_its_original_files(half):
    views = load_small_norb(REAL.parent)[half == "testing"]
    (category, _), (info, _) = read_integers(REAL, half, "cat"), read_integers(REAL, half, "info")
    assert len(views) == 24_300
    labels = np.stack([getattr(views, name).numpy() for name in LABELS], axis=1)
    assert np.array_equal(labels, np.column_stack([category, info]))
    assert [int(views.familiar(split).sum()) for split in ("azimuth", "elevation")] == [8100, 8100]


# What goes wrong


def labels(rows: list[list[int]]) -> bytes:
    return bytes_of(np.array(rows, dtype=np.int32))


SWAPPED = {
    "another kind": ("info", FILES["dat"], "must begin with 0x1e3d4c54, as info files do; it begins with 0x1e3d4c55"),
    "cat for info": ("info", FILES["cat"], "must have 2 dimensions, .*its header says 1, "),
    "info for cat": ("cat", FILES["info"], "must have 1 dimensions, .*its header says 2, "),
    "the other half": ("info", small_half("testing")["info"], "instance must be one of 4, 6, 7, 8, 9; example 0 has 3"),
    "fewer labels": ("cat", small_half("training", azimuths=(0,))["cat"], "has 4 examples and the cat file 2"),
    "fewer images": ("dat", small_half("training", azimuths=(0,))["dat"], "has 2 examples and its labels 4"),
    "cut header": ("cat", FILES["cat"][:11], "ends within its header"),
    "cut images": ("dat", FILES["dat"][:-1], "must hold 73728 bytes after its header; it holds 73727"),
    "cut labels": ("info", FILES["info"][:-4], "must hold 64 bytes after its header; it holds 60"),
    "more": ("dat", FILES["dat"] + b"x", "it holds at least one more"),
    "far too many": ("cat", struct.pack("<5i", 0x1E3D4C54, 1, 2**31 - 1, 1, 1), "with N from 1 to 100000"),
    "a viewpoint twice": (
        "info", labels([[7, 0, 6, 2]] * 4), "4 examples have 1 different of 1 combinations",
    ),
    "a hole in the grid": (
        "info", labels([[7, row, 2 * row, 2] for row in range(4)]), "4 different of 16 combinations",
    ),
    "an odd azimuth": ("info", labels([[7, 0, 5, 2]] * 4), "azimuth must be one"),
    "a cut gzip file": ("dat", gzip.compress(FILES["dat"])[:-20], "is not a whole gzip file"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "content", "message"), SWAPPED.values(), ids=SWAPPED)
def test_a_wrong_original_file_is_refused_by_name(folder, kind, content, message):
    write_half(folder, "training", {kind: content})
    with pytest.raises(ValueError, match=message) as refused:
        read_original(folder, "training")
    assert STEMS["training"] in str(refused.value)


def test_a_missing_original_file_is_named(folder):
    (folder / f"{STEMS['training']}-cat.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"There is no .*-training-cat.mat in .*; smallNORB is six such files"):
        read_original(folder, "training")


def archive(path: Path, **arrays: np.ndarray) -> Path:
    whole = {name: np.zeros(2, np.uint8) for name in LABELS} | {"images": np.zeros((2, 2, 48, 48), np.uint8)}
    np.savez_compressed(path, **{name: array for name, array in (whole | arrays).items() if array is not None})
    return path


def claiming(path: Path, size: int) -> Path:
    """An archive whose images claim to be many."""
    with zipfile.ZipFile(path, "w") as file:
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size}, 2, 48, 48), }}\n".encode()
        file.writestr("images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"x")
    return path


FOREIGN = {
    "text": (lambda path: path.write_text("hello") and path, "File is not a zip file"),
    "no images": (lambda path: archive(path, images=None), "images.npy"),
    "wrong size": (lambda path: archive(path, images=np.zeros((2, 2, 96, 96), np.uint8)), r"shape \('N', 2, 48, 48\)"),
    "wrong numbers": (lambda path: archive(path, azimuth=np.zeros(2)), "azimuth must be an array of 8-bit numbers"),
    "objects": (lambda path: archive(path, azimuth=np.array([{}, {}])), "azimuth must be an array of 8-bit numbers"),
    "fewer": (lambda path: archive(path, azimuth=np.zeros(1, np.uint8)), "there are 2 images and 1 values of azimuth"),
    "many": (lambda path: claiming(path, 10**6), "with N from 1 to 100000; got"),
    "more than it has": (lambda path: claiming(path, 90_000), "images claims 414720000 bytes and cannot hold them"),
    "another half": (lambda path: archive(path), "instance must be one of 4, 6, 7, 8, 9; example 0 has 0"),
    "not an array": (lambda path: pretending(path, b"hello"), "images is not a NumPy array of version 1"),
    "another method": (lambda path: pretending(path, b"hello", zipfile.ZIP_BZIP2), "must be stored or deflated, not"),
}


def pretending(path: Path, content: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("images.npy", content)
    return path


@pytest.mark.parametrize(("make", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_compact_file_is_refused_by_name(tmp_path, make, message):
    with pytest.raises(ValueError, match=message) as refused:
        read_views(make(tmp_path / "views.npz"), TRAINING_INSTANCES)
    assert "views.npz" in str(refused.value)


def damaged(content: bytes, others: list[bytes], moments: random.Random) -> bytes:
    """Flipped, cut, extended, or swapped for something else, once or twice."""
    for _ in range(moments.choice((1, 1, 2))):
        way, place = moments.choice(("flip", "flip", "flip", "cut", "extend", "swap")), moments.randrange(len(content))
        if moments.random() < 0.5:
            place = min(moments.randrange(64), len(content) - 1)  # headers are short, and matter most
        if way == "flip":
            content = content[:place] + bytes([content[place] ^ (1 << moments.randrange(8))]) + content[place + 1 :]
        elif way == "cut":
            content = content[:place] + content[place + moments.choice((1, 4, len(content))) :] or b"\0"
        elif way == "extend":
            content = content[:place] + moments.randbytes(moments.choice((1, 4, 100))) + content[place:]
        else:
            content = moments.choice(others)
    return content


@pytest.fixture
def little_memory():
    """No more than 256 MB beyond what is there already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("form", ["mat", "gz", "npz"])
def test_a_damaged_file_is_refused_or_gives_the_right_data(folder, tmp_path, form, little_memory):
    whole = read_original(folder, "training")
    write_views(tmp_path / "views.npz", whole)
    moments = random.Random(0)
    if form == "npz":
        contents = {"views": (tmp_path / "views.npz").read_bytes()}
    else:
        contents = {kind: gzip.compress(file, 1, mtime=0) if form == "gz" else file for kind, file in FILES.items()}
    others = [*contents.values(), *small_half("testing").values()]
    outcomes = {"refused": 0, "right": 0}
    for _ in range(1000):
        kind = moments.choice(list(contents))
        spoiled = damaged(contents[kind], others, moments)
        path = tmp_path / "views.npz" if form == "npz" else folder / f"{STEMS['training']}-{kind}.mat"
        path.write_bytes(spoiled)
        try:
            found = read_views(path, TRAINING_INSTANCES) if form == "npz" else read_original(folder, "training")
        except ValueError as error:
            outcomes["refused"] += path.name in str(error)
        else:
            expected = whole.images
            if kind == "dat" and spoiled[:2] != b"\x1f\x8b":  # no checksum: a pixel is what the file says
                expected = torch.from_numpy(downsampled(np.frombuffer(spoiled[24:], np.uint8).reshape(4, 2, 96, 96)))
            assert same(found, Views(expected, *(getattr(whole, name) for name in LABELS)))
            outcomes["right"] += 1
        if form != "npz":
            path.write_bytes(contents[kind])
    assert sum(outcomes.values()) == 1000
    assert min(outcomes.values()) > 10


# Folders


def test_a_data_folder_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PICASET_DATA", str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=r"PICASET_DATA must be the folder that holds the data sets; .*nothing is not"):
        data_root()


def test_folders_are_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    use_data_root(None)
    assert data_root() is None
    monkeypatch.setenv("PICASET_DATA", "")
    use_data_root(tmp_path)
    assert data_root() == tmp_path
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path / "kept"))
    assert cache_folder() == tmp_path / "kept"
    monkeypatch.delenv("PICASET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "picaset"


def test_a_folder_given_on_the_command_line_is_named_where_it_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv("PICASET_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"--data-root must be the folder that holds the data sets; .*nothing is not a"
    ):
        use_data_root(tmp_path / "nothing")
    assert data_root() is None
