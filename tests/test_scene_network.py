"""Networks that predict the objects of a scene: the encoder, all decoders, and saved networks of version 0.1."""

import json
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import picaset
from picaset import DeepSets
from picaset.lab.networks.image_stems import SceneEncoder
from picaset.lab.networks.scene_decoders import (
    SUMMARY_NORM,
    AttentionDecoder,
    CascadeDecoder,
    DescentDecoder,
    SlotDecoder,
)
from picaset.lab.networks.scene_network import VERSION_1_DECODERS, SceneNetwork

DECODERS = {
    "cascade": lambda **options: CascadeDecoder(16, num_heads=2, **options),
    "attention": lambda **options: AttentionDecoder(16, num_heads=2, **options),
    "slots": lambda **options: SlotDecoder(16, **options),
    "learned-slots": lambda **options: SlotDecoder(16, initial="learned", **options),
    "descent": lambda **options: DescentDecoder(16, num_places=64, **{"num_steps": 4} | options),
    "implicit-descent": lambda **options: DescentDecoder(
        16, num_places=64, implicit=True, **{"num_steps": 4} | options
    ),
}
ITERATIVE = [name for name in DECODERS if name != "attention"]
EACH_STEP = [name for name in ITERATIVE if "descent" not in name]
every_decoder = pytest.mark.parametrize("decoder", DECODERS)
IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def network(decoder: str = "cascade", **options) -> SceneNetwork:
    torch.manual_seed(0)
    return SceneNetwork(19, DECODERS[decoder](**options), image_size=32, dim=16)


def places(dim: int = 8, side: int = 4) -> torch.Tensor:
    return torch.randn(2, side * side, dim, generator=torch.Generator().manual_seed(3))


# The encoder


@pytest.mark.parametrize(("kind", "size", "side"), [("strided", 64, 16), ("full", 128, 32)])
def test_a_picture_becomes_a_grid_of_places(kind, size, side):
    encoder = SceneEncoder(8, kind=kind, image_size=size)
    assert encoder(torch.zeros(1, 3, size, size)).shape == (1, side**2, 8)
    assert encoder.grid[0].tolist() == [-1, -1]
    assert encoder.grid[1, 0] > encoder.grid[0, 0], "places go row by row"
    assert encoder.grid[-1].tolist() == [1, 1]


def test_the_published_encoder_is_four_convolutions_of_64_channels():
    layers = [
        layer for layer in SceneEncoder(kind="full", image_size=128).modules() if isinstance(layer, torch.nn.Conv2d)
    ]
    assert [(layer.kernel_size, layer.stride, layer.out_channels) for layer in layers] == [
        ((5, 5), (1, 1), 64), ((5, 5), (2, 2), 64), ((5, 5), (2, 2), 64), ((5, 5), (1, 1), 64)
    ]  # fmt: skip


def test_bytes_and_numbers_are_the_same_picture():
    encoder = SceneEncoder(8, image_size=32)
    assert_close(encoder(IMAGES), encoder(IMAGES.float() / 255), atol=1e-5, rtol=1e-4)


def test_waves_tell_a_place_from_its_neighbours_better_than_a_linear_map_does():
    def alike(positions):
        torch.manual_seed(0)
        encoder = SceneEncoder(64, positions=positions)
        found = encoder.embedding(encoder.grid)
        centred = torch.nn.functional.normalize(found - found.mean(dim=0), dim=1)
        return float((centred[16 * 8 + 8] @ centred[16 * 8 + 11]).detach())  # three places apart

    assert alike("waves") < alike("linear") - 0.1


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"images must have shape \(B, 3, 64, 64\); got \(3, 3, 32, 32\)"):
        SceneEncoder(8, image_size=64)(IMAGES)
    with pytest.raises(ValueError, match="image_size must be a multiple of 4 and dim even; got 30 and 8"):
        SceneEncoder(8, image_size=30)


# The decoders


@pytest.mark.parametrize("decoder", [name for name in DECODERS if "descent" not in name and name != "slots"])
def test_the_order_of_places_changes_nothing(decoder):
    torch.manual_seed(0)
    module, inputs = DECODERS[decoder](), places(16)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    assert_close(module(inputs[:, order]), module(inputs), atol=1e-5, rtol=1e-4)


def without_gradient(module: torch.nn.Module) -> list[str]:
    """Names of the weights without a gradient, except key biases, which a softmax over places does not depend on."""
    names = [name for name, weight in module.named_parameters() if weight.grad is None or not weight.grad.any()]
    return [name for name in names if "key_map.bias" not in name]


# The network


@every_decoder
def test_every_decoder_predicts_ten_vectors_between_zero_and_one(decoder):
    predicted = network(decoder).eval()(IMAGES).detach()
    assert predicted.shape == (3, 10, 19)
    assert 0 <= float(predicted.min()) <= float(predicted.max()) <= 1


@every_decoder
def test_an_image_is_seen_without_its_neighbours(decoder):
    trained = network(decoder).eval()
    with torch.no_grad():
        assert_close(trained(IMAGES)[1:2], trained(IMAGES[1:2]), atol=1e-5, rtol=1e-4)


@every_decoder
def test_every_weight_of_a_network_learns(decoder):
    trained = network(decoder)
    (trained(IMAGES) * torch.randn(3, 10, 19)).sum().backward()
    assert without_gradient(trained) == []


@every_decoder
def test_a_network_is_written_and_read_back(decoder, tmp_path):
    trained = network(decoder, **({} if decoder == "attention" else {"num_steps": 5})).eval()
    trained.save_pretrained(tmp_path)
    again = SceneNetwork.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(IMAGES), trained(IMAGES))
    assert again.config == trained.config
    assert again.decoder.config == trained.decoder.config


@pytest.mark.parametrize("decoder", ITERATIVE)
def test_a_call_may_take_more_steps_and_changes_no_other_call(decoder):
    few, many = network(decoder).eval(), network(decoder, num_steps=7).eval()
    with torch.no_grad():
        before = few(IMAGES)
        assert torch.equal(few(IMAGES, num_steps=7), many(IMAGES))
        assert not torch.allclose(before, many(IMAGES))
        assert torch.equal(few(IMAGES), before)


@pytest.mark.parametrize("decoder", [name for name in ITERATIVE if name != "slots"])
def test_steps_do_not_depend_on_the_mode(decoder):
    trained = network(decoder)
    with torch.no_grad():
        assert torch.equal(trained.train()(IMAGES, num_steps=5), trained.eval()(IMAGES, num_steps=5))


def test_calls_in_threads_take_their_own_numbers_of_steps():
    trained, results = network().eval(), dict[int, torch.Tensor]()

    @torch.no_grad()
    def predict(steps: int) -> None:
        for _ in range(20):
            results[steps] = trained(IMAGES, num_steps=steps)

    threads = [threading.Thread(target=predict, args=(steps,)) for steps in (1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        assert all(torch.equal(results[steps], trained(IMAGES, num_steps=steps)) for steps in (1, 6))


@every_decoder
def test_what_is_shown_is_what_is_predicted_from(decoder):
    trained = network(decoder).eval()
    trace = trained.trace(IMAGES)
    if "descent" in decoder:
        assert trace is None
        return
    last = trace.templates[-1]
    with torch.no_grad():
        last = trained.decoder.mixing(last) if decoder == "attention" else last
        assert_close(last, trained.decoder(trained.encoder(IMAGES)), atol=1e-5, rtol=1e-4)
    assert trace.attention.shape[-2:] == (10, 64)
    assert not trace.templates.requires_grad


@pytest.mark.parametrize("decoder", EACH_STEP)
def test_every_step_is_predicted_from_and_the_last_is_the_prediction(decoder):
    trained = network(decoder).eval()
    steps = trained(IMAGES, every_step=True)
    assert steps.shape == (3, 3, 10, 19)
    for number, step in enumerate(steps, start=1):
        assert_close(step, trained(IMAGES, num_steps=number), atol=1e-5, rtol=1e-4)
    assert trained(IMAGES, every_step=True, num_steps=2).shape == (2, 3, 10, 19)
    assert steps.requires_grad


@pytest.mark.parametrize("decoder", [name for name in DECODERS if name not in EACH_STEP])
def test_every_step_of_a_decoder_that_has_none_is_refused(decoder):
    name = type(network(decoder).decoder).__name__
    with pytest.raises(ValueError, match=f"{name} has no intermediate steps to return; call it without every_step"):
        network(decoder)(IMAGES, every_step=True)


def test_steps_of_a_decoder_without_any_are_refused():
    with pytest.raises(ValueError, match="AttentionDecoder attends once: num_steps must be None; got 4"):
        network("attention")(IMAGES, num_steps=4)


@pytest.mark.parametrize("decoder", ITERATIVE)
def test_no_steps_are_refused(decoder):
    with pytest.raises(ValueError, match="num_steps must be at least 1; got 0"):
        network(decoder)(IMAGES, num_steps=0)
    with pytest.raises(ValueError, match="num_steps must be at least 1; got 0"):
        network(decoder, num_steps=0)


@pytest.mark.as_installed
def test_a_decoder_that_does_not_fit_is_refused():
    with pytest.raises(TypeError, match=r"decoder must be a SceneDecoder; got DeepSets. Pass CascadeDecoder\(64\)"):
        SceneNetwork(19, DeepSets(2, 5))
    with pytest.raises(ValueError, match="decoder must have dim=64, as the network; got dim=16"):
        SceneNetwork(19, CascadeDecoder(16))
    with pytest.raises(ValueError, match="images must have num_places=64 places; got 256"):
        SceneNetwork(19, DECODERS["descent"](), dim=16)(torch.zeros(1, 3, 64, 64))


def test_only_an_implicit_descent_is_bounded_and_cut_and_goes_to_vectors_of_one_length():
    for kind in ("descent", "implicit-descent"):
        predictor, implicit = network(kind), kind == "implicit-descent"
        descent = predictor.decoder.descent
        assert (descent.implicit, descent.bounded, descent.clip > 0, descent.momentum > 0) == (implicit,) * 4
        lengths = predictor.decoder.summary(predictor.encoder(IMAGES)).detach().norm(dim=1)
        assert bool((lengths - SUMMARY_NORM).abs().max() < 1e-4) is implicit


# Networks of format version 1

FLAT = {
    "dim_out": 19, "num_objects": 10, "stem": "strided", "image_size": 32, "decoder": "picaso", "dim": 16,
    "num_heads": 2, "num_steps": 3, "num_test_steps": 0, "form": "authors", "norm": True, "compete": "templates",
    "located": True, "initial": "learned", "mixed": False, "positions": "linear", "every_step": False,
}  # fmt: skip
"""The arguments of a network in format version 1."""


def save_version_1(folder: Path, weights: dict[str, torch.Tensor], config: dict[str, object]) -> None:
    described = {"format": "picaset-network", "format_version": 1, "network": "SceneNetwork", "config": config}
    (folder / "config.json").write_text(json.dumps(described))
    save_file(weights, folder / "model.safetensors")


def version_1_weights(decoder: str, **options) -> dict[str, torch.Tensor]:
    """The weights of a network under their names in format version 1."""
    names = {"decoder.pool.": "decoder.", "decoder.descent.": "decoder.", "decoder.summary.": "summary."}
    names |= {"decoder.mixing.": "mixing."} if decoder == "attention" else {}
    weights = dict[str, torch.Tensor]()
    for name, tensor in network(decoder, **options).state_dict().items():
        prefix = next((prefix for prefix in names if name.startswith(prefix)), None)
        weights[name if prefix is None else names[prefix] + name.removeprefix(prefix)] = tensor
    return weights


@every_decoder
def test_a_network_of_version_1_is_upgraded(decoder, tmp_path):
    version_1 = "picaso" if decoder == "cascade" else decoder
    steps = {} if decoder == "attention" else {"num_steps": 5}
    save_version_1(tmp_path, version_1_weights(decoder), FLAT | {"decoder": version_1, "num_test_steps": 5})
    upgraded, expected = SceneNetwork.from_pretrained(tmp_path), network(decoder, **steps).eval()
    assert upgraded.config == expected.config
    with torch.no_grad():
        assert torch.equal(upgraded(IMAGES), expected(IMAGES))


def test_the_competing_decoder_of_version_1_is_a_plain_cascade_or_refused(tmp_path):
    plain = FLAT | {"decoder": "competing", "compete": "elements", "located": False}
    weights = {name.replace("blocks.0.", "block."): tensor for name, tensor in version_1_weights("cascade").items()}
    save_version_1(tmp_path, weights, plain)
    upgraded, expected = SceneNetwork.from_pretrained(tmp_path), network().eval()
    assert upgraded.config == expected.config
    with torch.no_grad():
        assert torch.equal(upgraded(IMAGES), expected(IMAGES))
    save_version_1(tmp_path, weights, plain | {"mixed": True})
    with pytest.raises(ValueError, match="the decoder option mixed=True was removed; only False is left"):
        SceneNetwork.from_pretrained(tmp_path)


def test_a_damaged_network_of_version_1_is_refused(tmp_path):
    save_version_1(tmp_path, version_1_weights("cascade"), FLAT | {"decoder": "lstm"})
    with pytest.raises(ValueError, match=f"there is no decoder 'lstm'; decoders are {', '.join(VERSION_1_DECODERS)}"):
        SceneNetwork.from_pretrained(tmp_path)
    save_version_1(tmp_path, version_1_weights("cascade"), {"dim_out": 19, "decoder": "picaso"})
    with pytest.raises(ValueError, match="does not fit the network: the argument 'image_size' is missing"):
        SceneNetwork.from_pretrained(tmp_path)


SHIPPED = sorted((Path(picaset.__file__).parent / "studio" / "weights").glob("scenes_*"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_every_shipped_network_is_read_with_all_its_weights(folder):
    shipped = SceneNetwork.from_pretrained(folder).float()
    weights = load_file(folder / "model.safetensors")
    assert sum(tensor.numel() for tensor in shipped.state_dict().values()) == sum(map(torch.numel, weights.values()))
    with torch.no_grad():
        assert shipped(torch.zeros(1, 3, 64, 64)).shape == (1, 10, 19)
