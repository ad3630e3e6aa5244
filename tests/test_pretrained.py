"""Networks written to a directory and read back."""

import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file

from picaset import DeepSets, Picaso, SetTransformer
from picaset.files import replacing

NETWORKS = {
    "DeepSets": lambda: DeepSets(3, 5, dim=8, pool="max", num_outputs=2),
    "SetTransformer": lambda: SetTransformer(3, 5, dim=8, num_heads=2, num_inducing=4, form="authors", norm=True),
    "Picaso": lambda: Picaso(3, 5, dim=8, num_heads=2, encoder="self", num_steps=2, num_decoder_blocks=0),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


@every_network
def test_a_network_read_back_gives_the_same_numbers(name: str, tmp_path):
    network = NETWORKS[name]().eval()
    network.save_pretrained(tmp_path / "net")
    again = type(network).from_pretrained(tmp_path / "net")
    elements = torch.randn(2, 7, 3)
    assert torch.equal(again(elements), network(elements))
    assert again.config == network.config
    assert not again.training


@every_network
def test_a_saved_network_is_json_and_safetensors_alone(name: str, tmp_path):
    NETWORKS[name]().save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["format"] == "picaset-network"
    assert described["format_version"] == 2
    assert described["network"] == name


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_keeps_its_precision(dtype, tmp_path):
    NETWORKS["Picaso"]().to(dtype).save_pretrained(tmp_path)
    assert {weight.dtype for weight in Picaso.from_pretrained(tmp_path).parameters()} == {dtype}


@pytest.fixture
def saved(tmp_path):
    NETWORKS["Picaso"]().save_pretrained(tmp_path)
    return tmp_path


def describe(directory, **changes) -> None:
    described = json.loads((directory / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps(described))


def refuses(message: str, kind: type[Exception] = ValueError):
    return pytest.raises(kind, match=re.escape(message))


def test_a_directory_of_another_network_is_refused(saved):
    with refuses("holds a Picaso; load it with Picaso.from_pretrained."):
        DeepSets.from_pretrained(saved)


def test_an_unknown_format_version_is_refused(saved):
    describe(saved, format_version=7)
    with refuses("has format version 7; this picaset reads versions 1 to 2."):
        Picaso.from_pretrained(saved)


def test_a_foreign_config_is_refused(saved):
    (saved / "config.json").write_text('{"architectures": ["BertModel"]}')
    with refuses('"format" must be "picaset-network".'):
        Picaso.from_pretrained(saved)


def test_a_config_that_is_cut_short_is_refused(saved):
    (saved / "config.json").write_text('{"format": "pica')
    with refuses("is not JSON"):
        Picaso.from_pretrained(saved)


def test_a_config_without_its_parts_is_refused(saved):
    describe(saved, config=None)
    with refuses('must have a "network" name and a "config" object.'):
        Picaso.from_pretrained(saved)


def test_a_config_with_a_misspelled_argument_is_refused(saved):
    describe(saved, config={"dim_in": 3, "dim_out": 5, "num_hedas": 2})
    with refuses("num_hedas"):
        Picaso.from_pretrained(saved)


def test_weights_of_another_shape_are_refused_by_name(saved):
    NETWORKS["Picaso"]().save_pretrained(saved)
    described = json.loads((saved / "config.json").read_text())
    describe(saved, config=described["config"] | {"dim_out": 6})
    with refuses(
        "holds the weights of another network: decoder.0.bias must have shape (6,); in the file it would have shape (5,)."
    ):
        Picaso.from_pretrained(saved)


def test_missing_and_foreign_weights_are_refused_by_name(saved):
    save_file({"other.weight": torch.zeros(2)}, saved / "model.safetensors")
    with refuses("decoder.0.bias must have shape (5,); in the file it would be absent."):
        Picaso.from_pretrained(saved)


def test_weights_that_are_cut_short_are_refused(saved):
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with refuses("is not a whole safetensors file"):
        Picaso.from_pretrained(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(saved, name: str):
    (saved / name).unlink()
    with refuses(f"{saved / name} does not exist", FileNotFoundError):
        Picaso.from_pretrained(saved)


def test_a_folder_that_is_none_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "nowhere"):
        with refuses(f"{path} is not a folder; a network is a folder with config.json", FileNotFoundError):
            Picaso.from_pretrained(path)


def test_a_failed_write_leaves_what_was_there(saved, monkeypatch):
    before = (saved / "model.safetensors").read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("picaset.networks.pretrained.save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        NETWORKS["DeepSets"]().save_pretrained(saved)
    assert (saved / "model.safetensors").read_bytes() == before
    assert sorted(os.listdir(saved)) == ["config.json", "model.safetensors"]
    Picaso.from_pretrained(saved)


def test_an_interrupted_replacement_leaves_nothing_behind(tmp_path):
    (tmp_path / "notes").write_text("old")

    def write_half() -> None:
        with replacing(tmp_path / "notes") as unfinished:
            unfinished.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert os.listdir(tmp_path) == ["notes"]
    assert (tmp_path / "notes").read_text() == "old"


def test_two_threads_that_write_one_file_do_not_spoil_it(tmp_path):
    both = threading.Barrier(2)

    def write(letter):
        with replacing(tmp_path / "notes") as unfinished:
            both.wait(timeout=10)
            unfinished.write_text(letter * 1000)
            both.wait(timeout=10)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "ab"))
    assert (tmp_path / "notes").read_text() in ("a" * 1000, "b" * 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
