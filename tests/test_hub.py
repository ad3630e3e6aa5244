"""Networks and pools on the Hugging Face Hub, against a local stand-in; nothing reaches the internet."""

import inspect
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelHubMixin

import picaset
from picaset import DeepSets, MeanPool, Picaso, PicasoPool, SelfAttention
from picaset.extras import MissingExtraError
from tests.hub_server import Repositories, local_hub

MODULES = {
    "Picaso": lambda: Picaso(3, 2, dim=8, num_heads=2, num_inducing=3, norm=True),
    "DeepSets": lambda: DeepSets(3, 2, dim=8),
    "PicasoPool": lambda: PicasoPool(3, num_templates=2, num_heads=3),
    "SelfAttention": lambda: SelfAttention(3, 8, num_heads=2),
    "MeanPool": MeanPool,
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with local_hub(monkeypatch, str(tmp_path / "cache")) as repositories:
        yield repositories


@pytest.mark.parametrize("name", MODULES)
def test_what_is_pushed_to_the_hub_is_loaded_by_name(name: str, hub: Repositories):
    module, elements = MODULES[name]().eval(), torch.randn(2, 5, 3)
    address = module.push_to_hub(f"somebody/{name}", token="none")
    again = getattr(picaset, name).from_pretrained(f"somebody/{name}", token="none")
    assert address.endswith(hub.branches[f"somebody/{name}"]["main"])
    assert torch.equal(again(elements), module(elements))
    assert again.config == module.config


def test_a_revision_pins_the_weights(hub: Repositories):
    first, second = MODULES["PicasoPool"](), MODULES["PicasoPool"]()
    commit = first.push_to_hub("somebody/pool").rpartition("/")[2]
    second.push_to_hub("somebody/pool")
    second.push_to_hub("somebody/pool", branch="next")
    newest, pinned = (PicasoPool.from_pretrained("somebody/pool", revision=name) for name in ("next", commit))
    assert torch.equal(newest.templates, second.templates)
    assert torch.equal(pinned.templates, first.templates)


def test_a_pushed_network_has_a_model_card_whose_example_runs(hub: Repositories, tmp_path):
    MODULES["Picaso"]().push_to_hub("somebody/network")
    files = hub.commits["somebody/network"][hub.branches["somebody/network"]["main"]]
    assert sorted(files) == ["README.md", "config.json", "model.safetensors"]
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: picaset\n")
    code = card.partition("```python\n")[2].partition("```")[0]
    namespace = {"elements": torch.randn(2, 5, 3), "mask": torch.ones(2, 5, dtype=torch.bool)}
    exec(code, namespace)
    assert namespace["output"].shape == (2, 1, 2)


def test_a_model_card_that_somebody_wrote_is_kept(hub: Repositories):
    hub.create("somebody/network")
    hub.commit("somebody/network", "main", {"README.md": b"mine"})
    MODULES["DeepSets"]().push_to_hub("somebody/network")
    files = hub.commits["somebody/network"][hub.branches["somebody/network"]["main"]]
    assert files["README.md"] == b"mine"
    assert "model.safetensors" in files


def test_a_cached_network_loads_without_the_hub(monkeypatch, tmp_path):
    module = MODULES["PicasoPool"]()
    with local_hub(monkeypatch, str(tmp_path / "cache")):
        commit = module.push_to_hub("somebody/pool").rpartition("/")[2]
        PicasoPool.from_pretrained("somebody/pool", revision=commit)
    assert torch.equal(PicasoPool.from_pretrained("somebody/pool", revision=commit).templates, module.templates)
    with pytest.raises(
        OSError,
        match=r"^somebody/other is not a folder, and could not be loaded from the Hub: the Hub "
        r"cannot be reached, and the files are not in the cache. Check the connection, or pass a folder.$",
    ):
        PicasoPool.from_pretrained("somebody/other")
    with pytest.raises(OSError, match=r"^somebody/pool could not be pushed to the Hub: the Hub cannot be reached"):
        module.push_to_hub("somebody/pool")


def test_a_repository_or_a_revision_that_does_not_exist_is_reported(hub: Repositories):
    with pytest.raises(OSError, match="there is no such repository, or it is private and needs a token"):
        PicasoPool.from_pretrained("somebody/nothing")
    MODULES["PicasoPool"]().push_to_hub("somebody/pool")
    with pytest.raises(OSError, match=r"somebody/pool is not a folder, and .*: it has no such revision"):
        PicasoPool.from_pretrained("somebody/pool", revision="v9")


def test_a_repository_of_another_class_is_refused(hub: Repositories):
    MODULES["DeepSets"]().push_to_hub("somebody/network")
    with pytest.raises(ValueError, match=r"holds a DeepSets; load it with DeepSets.from_pretrained"):
        Picaso.from_pretrained("somebody/network")


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("from_pretrained", ["force_download", "token", "cache_dir", "local_files_only", "revision"]),
        ("push_to_hub", ["repo_id", "commit_message", "private", "token", "branch", "create_pr"]),
    ],
)
def test_the_main_arguments_are_those_of_the_mixin(method: str, names: list[str]):
    theirs = inspect.signature(getattr(ModelHubMixin, method)).parameters
    ours = inspect.signature(getattr(PicasoPool, method)).parameters
    assert list(ours)[-len(names) :] == names
    for name in names:
        assert ours[name].kind is theirs[name].kind
        assert name == "commit_message" or ours[name].default == theirs[name].default


def test_a_cache_of_ones_own_is_used_alone_if_so_wished(hub: Repositories, tmp_path):
    first, second = MODULES["PicasoPool"](), MODULES["PicasoPool"]()
    first.push_to_hub("somebody/pool")
    with pytest.raises(OSError, match="the files are not in the cache, and local_files_only forbids to ask the Hub"):
        PicasoPool.from_pretrained("somebody/pool", cache_dir=tmp_path / "own", local_files_only=True)
    PicasoPool.from_pretrained("somebody/pool", cache_dir=tmp_path / "own")
    assert (tmp_path / "own/models--somebody--pool").is_dir()
    second.push_to_hub("somebody/pool")
    cached = PicasoPool.from_pretrained("somebody/pool", cache_dir=tmp_path / "own", local_files_only=True)
    assert torch.equal(cached.templates, first.templates)
    newest = PicasoPool.from_pretrained("somebody/pool", cache_dir=tmp_path / "own")
    assert torch.equal(newest.templates, second.templates)
    for path in (tmp_path / "own").rglob("blobs/*"):
        path.write_bytes(b"damaged")
    again = PicasoPool.from_pretrained("somebody/pool", cache_dir=tmp_path / "own", force_download=True)
    assert torch.equal(again.templates, second.templates)


def test_a_pull_request_leaves_the_branch_as_it_is(hub: Repositories):
    first, second = MODULES["PicasoPool"](), MODULES["PicasoPool"]()
    first.push_to_hub("somebody/pool")
    commit = second.push_to_hub("somebody/pool", create_pr=True).rpartition("/")[2]
    assert torch.equal(PicasoPool.from_pretrained("somebody/pool").templates, first.templates)
    assert torch.equal(PicasoPool.from_pretrained("somebody/pool", revision=commit).templates, second.templates)


def test_a_folder_takes_precedence_over_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pool = MODULES["PicasoPool"]()
    pool.save_pretrained("somebody/pool")
    assert torch.equal(PicasoPool.from_pretrained("somebody/pool").templates, pool.templates)
    with pytest.raises(ValueError, match=r"revision needs the name of a repository of the Hub; .* is a folder"):
        PicasoPool.from_pretrained("somebody/pool", revision="main")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(
        MissingExtraError,
        match=r"there is no folder somebody/pool; loading it by name needs huggingface_hub; install it with: pip "
        r"install 'picaset\[hub\]'",
    ):
        PicasoPool.from_pretrained("somebody/pool")
    with pytest.raises(MissingExtraError, match=r"pushing to the Hub needs huggingface_hub"):
        MODULES["PicasoPool"]().push_to_hub("somebody/pool")


def test_a_module_of_code_is_not_saved():
    with pytest.raises(ValueError, match=r"the argument network is a Linear, which has no form in config.json"):
        picaset.Elementwise(torch.nn.Linear(2, 3)).save_pretrained(Path("nowhere"))
