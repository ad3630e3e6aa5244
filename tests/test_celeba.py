"""CelebA as its owners distribute it: what is read, and what is refused."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from picaset.lab.data import celeba
from picaset.lab.data.celeba import read_celeba
from picaset.lab.data.folders import cache_folder, data_folder
from tests.celeba_files import write_celeba


@pytest.fixture
def folder(tmp_path) -> Path:
    write_celeba(tmp_path / "celeba", 16)
    return tmp_path / "celeba"


def read(folder: Path):
    return read_celeba(folder, folder.parent / "cache")


def cached(folder: Path) -> list[str]:
    return sorted(os.listdir(folder.parent / "cache")) if (folder.parent / "cache").exists() else []


def test_images_attributes_and_parts_are_those_of_the_files(tmp_path):
    expected = write_celeba(tmp_path / "celeba")
    faces = read(tmp_path / "celeba")
    assert np.array_equal(faces.attributes, expected.attributes)
    assert np.array_equal(faces.parts, expected.parts)
    assert faces.names == expected.names
    assert faces.description == "CelebA, 40-image subset"
    # A face that was made larger, written as JPEG, cropped and made smaller is nearly the one it was.
    assert faces.images.shape == (40, 64, 64, 3)
    assert np.abs(faces.images.astype(float) - expected.images).mean() < 6


def test_images_are_decoded_once_and_mapped_into_memory(folder, monkeypatch):
    first = np.array(read(folder).images)
    read_celeba.cache_clear()
    monkeypatch.setattr(celeba, "decode", None)
    again = read(folder).images
    assert isinstance(again, np.memmap)
    assert np.array_equal(again, first)


def test_a_changed_image_is_decoded_again(folder):
    read(folder)
    path = folder / "img_align_celeba" / "000001.jpg"
    path.write_bytes((folder / "img_align_celeba" / "000002.jpg").read_bytes())
    read_celeba.cache_clear()
    faces = read(folder)
    assert np.array_equal(faces.images[0], faces.images[1])
    assert len(cached(folder)) == 2


@pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda whole: b"", lambda whole: b"nonsense" + whole[8:]])
def test_a_damaged_file_of_decoded_images_is_made_again(folder, damage):
    first = np.array(read(folder).images)
    (path,) = (folder.parent / "cache").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    read_celeba.cache_clear()
    assert np.array_equal(read(folder).images, first)
    assert cached(folder) == [path.name]


def test_the_lists_may_name_fewer_images_than_there_are(folder):
    lines = (folder / "list_attr_celeba.txt").read_text().splitlines()
    (folder / "list_attr_celeba.txt").write_text("\n".join(["5", *lines[1:7]]))
    assert len(read(folder)) == 5


def change(path: Path, before: str, after: str) -> None:
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))


def in_attributes(before: str, after: str):
    return lambda folder: change(folder / "list_attr_celeba.txt", before, after)


def in_parts(before: str, after: str):
    return lambda folder: change(folder / "list_eval_partition.txt", before, after)


def cut_short(name: str, share: float):
    def cut(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return cut


def write_image(content: bytes):
    return lambda folder: (folder / "img_align_celeba/000003.jpg").write_bytes(content)


def tiny_image(folder: Path) -> None:
    from PIL import Image

    Image.new("RGB", (178, 100)).save(folder / "img_align_celeba" / "000003.jpg")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (in_attributes("16\n", "17\n"), "says 17 images in its first line and lists 16; was it cut short"),
        (in_attributes("16\n", "15\n"), "says 15 images in its first line and lists 16; was it cut short"),
        (in_attributes("16\n", "-16\n"), "must begin with the number of images and the names of the attributes"),
        (in_attributes("Bald Bangs", "Bald"), r"line 3: expected a name and 15 attributes; got 17 words"),
        (in_attributes("16\n", "many\n"), "must begin with the number of images and the names of the attributes"),
        (in_attributes("000003.jpg 1", "000003.jpg 1 1"), r"line 5: expected a name and 16 attributes; got 18 words"),
        (in_attributes("000003.jpg 1", "000003.jpg 2"), r"line 5: an attribute must be 1 or -1; got '2'"),
        (in_attributes("000003.jpg", "../000003.jpg"), r"line 5: '\.\./000003\.jpg' must be the name of a file"),
        (in_attributes("000003.jpg", "/etc/000003.jpg"), r"line 5: '/etc/000003\.jpg' must be the name of a file"),
        (in_attributes("000003.jpg", "..\\000003.jpg"), r"line 5: .* must be the name of a file .* without a path"),
        (in_attributes("000003.jpg", "000002.jpg"), r"line 5: 000002\.jpg is listed twice"),
        (in_parts("000003.jpg", "000099.jpg"), r"does not say to which part 000003\.jpg belongs"),
        (in_parts("000003.jpg", "000002.jpg"), r"line \d+: 000002\.jpg is listed twice"),
        (in_parts("000003.jpg 0", "000003.jpg"), r"expected a name and 0, 1 or 2; got '000003\.jpg'"),
        (in_parts("000003.jpg 0", "000003.jpg 7"), r"expected a name and 0, 1 or 2; got '000003\.jpg 7'"),
        (lambda folder: (folder / "list_attr_celeba.txt").unlink(), "list_attr_celeba.txt does not exist; CelebA is"),
        (
            lambda folder: (folder / "list_eval_partition.txt").unlink(),
            "list_eval_partition.txt does not exist; CelebA",
        ),
        (cut_short("list_attr_celeba.txt", 0), "must begin with the number of images and the names of the attributes"),
        (cut_short("list_attr_celeba.txt", 0.6), "was it cut short|expected a name and 16 attributes"),
        (lambda folder: (folder / "list_attr_celeba.txt").write_bytes(b"\xff\xfe"), "is not text"),
        (lambda folder: (folder / "img_align_celeba").rename(folder / "images"), "is not a folder; CelebA is"),
        (
            lambda folder: (folder / "img_align_celeba/000003.jpg").unlink(),
            r"000003\.jpg does not exist; 1 of the 16 images that list_attr_celeba.txt lists are missing",
        ),
        (cut_short("img_align_celeba/000003.jpg", 0.5), r"000003\.jpg is not an image that can be read .*truncated"),
        (write_image(b"<html>not found</html>"), r"000003\.jpg is not an image that can be read"),
        (write_image(b"\xff\xd8\xff\xe0" + bytes(500)), r"000003\.jpg is not an image that can be read"),
        (cut_short("img_align_celeba/000003.jpg", 0), r"000003\.jpg is not an image that can be read"),
        (tiny_image, r"000003\.jpg must be at least 160 x 160 pixels; got 178 x 100"),
    ],
)
def test_what_is_damaged_is_refused_and_nothing_is_left_half_written(folder, spoil, message):
    # The third image is bald and nothing is known of it but that: attributes begin with "Bald".
    lines = (folder / "list_attr_celeba.txt").read_text().splitlines()
    lines[4] = "000003.jpg 1" + lines[4].removeprefix("000003.jpg").lstrip(" -")[1:]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read(folder)
    assert cached(folder) == []


def test_a_full_disk_leaves_nothing_half_written(folder, monkeypatch):
    decode = celeba.decode

    def full(path):
        if path.name == "000003.jpg":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return decode(path)

    monkeypatch.setattr(celeba, "decode", full)
    with pytest.raises(OSError, match="No space left on device"):
        read(folder)
    assert cached(folder) == []


def test_real_data_is_found_below_the_folder_that_is_named(folder, monkeypatch):
    monkeypatch.setenv("PICASET_DATA", str(folder.parent))
    assert data_folder("celeba") == folder
    with pytest.raises(
        FileNotFoundError, match="nothing is not a folder; PICASET_DATA, or --data-root, must be the folder that"
    ):
        data_folder("nothing")
    monkeypatch.delenv("PICASET_DATA")
    with pytest.raises(ValueError, match="Real data is needed; set PICASET_DATA to the folder that holds celeba/"):
        data_folder("celeba")


def test_the_cache_is_written_to_the_given_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PICASET_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("PICASET_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "picaset"
