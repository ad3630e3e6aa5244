"""Networks written to a directory and read back, and the arguments that modules record."""

import copy
import json
import os
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file

from picaset import DeepSets, Picaso, SetTransformer
from picaset.files import atomic_write
from picaset.pretrained import Configurable, ModuleConfig

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
    with refuses("of another network: decoder.0.bias must have shape (6,); in the file it has shape (5,)."):
        Picaso.from_pretrained(saved)


def test_missing_and_foreign_weights_are_refused_by_name(saved):
    save_file({"other.weight": torch.zeros(2)}, saved / "model.safetensors")
    with refuses("decoder.0.bias must have shape (5,); in the file it is absent."):
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


def test_a_failed_write_leaves_the_previous_file(saved, monkeypatch):
    before = (saved / "model.safetensors").read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("picaset.pretrained.save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        NETWORKS["DeepSets"]().save_pretrained(saved)
    assert (saved / "model.safetensors").read_bytes() == before
    assert sorted(os.listdir(saved)) == ["config.json", "model.safetensors"]
    Picaso.from_pretrained(saved)


def test_an_interrupted_replacement_leaves_nothing_behind(tmp_path):
    (tmp_path / "notes").write_text("old")

    def write_half() -> None:
        with atomic_write(tmp_path / "notes") as unfinished:
            unfinished.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert os.listdir(tmp_path) == ["notes"]
    assert (tmp_path / "notes").read_text() == "old"


@pytest.mark.parametrize(("name", "reason"), [("folder", "Is a directory"), ("x" * 251, "File name too long")])
def test_an_error_of_writing_names_the_file_that_was_asked_for(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=reason) as caught, atomic_write(tmp_path / name) as unfinished:
        unfinished.write_text("new")
    assert caught.value.filename == str(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]


def test_two_threads_that_write_one_file_do_not_spoil_it(tmp_path):
    both = threading.Barrier(2)

    def write(letter):
        with atomic_write(tmp_path / "notes") as unfinished:
            both.wait(timeout=10)
            unfinished.write_text(letter * 1000)
            both.wait(timeout=10)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "ab"))
    assert (tmp_path / "notes").read_text() in ("a" * 1000, "b" * 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


# Arguments that modules record, and descriptions of modules


class Inner(Configurable):
    """A part of a module."""

    def __init__(self, width: int = 2, *, rate: float = 0.5) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))


class Outer(Configurable):
    """A module that takes a module."""

    def __init__(self, inner: Inner, *, sizes: tuple[int, int] = (1, 2), name: str = "a") -> None:
        super().__init__()
        self.inner = inner


def test_a_module_records_its_arguments_with_their_defaults():
    assert Inner().config == {"width": 2, "rate": 0.5}
    assert Inner(3).config == Inner(width=3).config == {"width": 3, "rate": 0.5}
    assert Outer(Inner(3), name="b").config == {
        "inner": {"class": "Inner", "arguments": {"width": 3, "rate": 0.5}}, "sizes": [1, 2], "name": "b"
    }  # fmt: skip
    blocks = SetTransformer(3, 5, dim=8, num_heads=2, form="authors").config
    assert (blocks["form"], blocks["num_inducing"], "norm" in blocks) == ("authors", 32, False)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_keeps_the_recorded_arguments(copied):
    for module in (Inner(3), Outer(Inner(3), name="b"), NETWORKS["Picaso"]()):
        again = copied(module)
        assert again.config == module.config
        assert again.state_dict().keys() == module.state_dict().keys()


def test_a_subclass_without_a_constructor_records_the_arguments_of_its_parent():
    class Same(Inner):
        pass

    assert Same(4).config == {"width": 4, "rate": 0.5}


def test_wrong_arguments_are_reported_by_the_constructor():
    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'"):
        Inner(widht=3)


def test_a_description_builds_the_module_that_it_describes():
    described = ModuleConfig.of(Outer, inner=ModuleConfig.of(Inner, width=3), sizes=(4, 5))
    module = described.build()
    assert isinstance(module, Outer)
    assert isinstance(module.inner, Inner)
    assert module.config == described.to_json()["arguments"]
    assert (described["sizes"], described["name"], "sizes" in described, "size" in described) == (
        (4, 5),
        "a",
        True,
        False,
    )


def test_a_description_is_a_value_that_json_keeps():
    described = ModuleConfig.of(Outer, inner=ModuleConfig.of(Inner, width=3))
    again = ModuleConfig.from_json(json.loads(json.dumps(described.to_json())), where="file")
    assert again == described == ModuleConfig.of(Outer, inner=ModuleConfig.of(Inner, width=3, rate=0.5), name="a")
    assert hash(again) == hash(described)
    changed = described.replace(name="b", inner=described["inner"].replace(rate=1))
    assert changed != described
    assert (changed["name"], changed["inner"]["rate"], changed["inner"]["width"]) == ("b", 1.0, 3)


INNER = {"class": "Inner", "arguments": {}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"class": "Iner"}, "file: there is no module 'Iner'; did you mean 'Inner'?"),
        ({"arguments": {}}, 'file must be an object with "class" and "arguments"; got'),
        ("Inner", 'file must be an object with "class" and "arguments"; got \'Inner\'.'),
        ({"class": "Inner", "arguments": [1]}, "file: arguments must be an object; got [1]."),
        ({"class": "Inner", "arguments": {"widht": 1}}, "file: there is no argument 'widht'; did you mean 'width'?"),
        ({"class": "Inner", "arguments": {"width": "3"}}, "file: width must be a whole number; got '3'."),
        ({"class": "Inner", "arguments": {"rate": True}}, "file: rate must be a number; got True."),
        ({"class": "Outer", "arguments": {}}, "file: the argument 'inner' is missing."),
        ({"class": "Outer", "arguments": {"inner": 3}}, "file: inner must be of class Inner; got 3."),
        (
            {"class": "Outer", "arguments": {"inner": {"class": "Outer", "arguments": {"inner": INNER}}}},
            "file: inner must be of class Inner; got a description of Outer.",
        ),
        (
            {"class": "Outer", "arguments": {"inner": {"class": "Inner", "arguments": {"width": None}}}},
            "file, inner: width must be a whole number; got None.",
        ),
        ({"class": "Outer", "arguments": {"inner": INNER, "sizes": [1]}}, "sizes must be tuple[int, int]; got [1]."),
    ],
)  # fmt: skip
def test_a_description_that_does_not_fit_is_refused_by_name(values, message):
    with refuses(message):
        ModuleConfig.from_json(values, where="file")
