"""Networks that predict the objects of a scene: encoder, cascades that compete, and all decoders."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import picaset
from picaset.lab.experiments import experiment
from picaset.lab.experiments.scenes import SCENES
from picaset.lab.networks.competing_cascade import CompetingCascade, highest_peaks
from picaset.lab.networks.image_stems import Places, SceneEncoder
from picaset.lab.networks.scene_network import DECODERS, LENGTH, SceneNetwork
from picaset.lab.networks.set_descent import SetDescent
from picaset.operators.picaso import PicasoPool

IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
OPTIONS = [
    {"compete": compete, "located": located, "initial": initial, "mixed": mixed}
    for compete, located, initial, mixed in product(
        ("elements", "templates", "both"), (False, True), ("learned", "peaks"), (False, True)
    )
]


def network(decoder="picaso", **options) -> SceneNetwork:
    torch.manual_seed(0)
    steps = {"num_steps": 4} if "descent" in decoder else {}
    return SceneNetwork(19, image_size=32, decoder=decoder, dim=16, num_heads=2, **steps, **options)


def places(dim: int = 8, side: int = 4) -> Places:
    generator = torch.Generator().manual_seed(3)
    number = side * side
    return Places(
        torch.randn(2, number, dim, generator=generator),
        torch.randn(number, dim, generator=generator),
        torch.rand(number, 2, generator=generator) * 2 - 1,
    )


# The encoder


@pytest.mark.parametrize(("kind", "size", "side"), [("strided", 64, 16), ("full", 128, 32)])
def test_a_picture_becomes_a_grid_of_places(kind, size, side):
    encoder = SceneEncoder(8, kind=kind, image_size=size)
    found = encoder(torch.zeros(1, 3, size, size))
    assert found.elements.shape == (1, side**2, 8)
    assert found.grid[0].tolist() == [-1, -1]
    assert found.grid[1, 0] > found.grid[0, 0], "places go row by row"
    assert found.grid[-1].tolist() == [1, 1]


def test_the_published_encoder_is_four_convolutions_of_64_channels():
    layers = [
        layer for layer in SceneEncoder(kind="full", image_size=128).modules() if isinstance(layer, torch.nn.Conv2d)
    ]
    assert [(layer.kernel_size, layer.stride, layer.out_channels) for layer in layers] == [
        ((5, 5), (1, 1), 64), ((5, 5), (2, 2), 64), ((5, 5), (2, 2), 64), ((5, 5), (1, 1), 64)
    ]  # fmt: skip


def test_bytes_and_numbers_are_the_same_picture():
    encoder = SceneEncoder(8, image_size=32)
    assert_close(encoder(IMAGES).elements, encoder(IMAGES.float() / 255).elements, atol=1e-5, rtol=1e-4)


def test_waves_tell_a_place_from_its_neighbours_better_than_a_linear_map_does():
    def alike(positions):
        torch.manual_seed(0)
        found = SceneEncoder(64, positions=positions)(torch.zeros(1, 3, 64, 64)).positions
        centred = torch.nn.functional.normalize(found - found.mean(dim=0), dim=1)
        return float((centred[16 * 8 + 8] @ centred[16 * 8 + 11]).detach())  # three places apart

    assert alike("waves") < alike("linear") - 0.1


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"images must have shape \(B, 3, 64, 64\); got \(3, 3, 32, 32\)"):
        SceneEncoder(8, image_size=64)(IMAGES)
    with pytest.raises(ValueError, match="image_size must be a multiple of 4 and dim even; got 30 and 8"):
        SceneEncoder(8, image_size=30)


# The cascade


@pytest.mark.parametrize("form", ["paper", "authors"])
@pytest.mark.parametrize("norm", [False, True])
def test_without_competition_or_positions_it_is_the_paper_s_cascade(form, norm):
    options = dict(num_templates=3, num_heads=2, num_steps=3, form=form, norm=norm)
    ours, paper = CompetingCascade(8, compete="elements", located=False, **options), PicasoPool(8, **options)
    weights = {name.replace("blocks.0.", "block."): tensor for name, tensor in paper.state_dict().items()}
    ours.load_state_dict(weights)
    assert_close(ours(places()), paper(places().elements), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_the_order_of_places_changes_nothing(options):
    torch.manual_seed(0)
    cascade = CompetingCascade(8, num_templates=3, num_heads=2, **options)
    given = places()
    if options["initial"] == "peaks":
        # Peaks are peaks of a grid, which may be mirrored but not torn apart.
        order = torch.arange(16).unflatten(0, (4, 4)).flip(1).flatten()
    else:
        order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    moved = Places(given.elements[:, order], given.positions[order], given.grid[order])
    assert_close(cascade(moved), cascade(given), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_every_weight_learns(options):
    cascade = CompetingCascade(8, num_templates=3, num_heads=2, **options)
    (cascade(places()) * torch.randn(2, 3, 8)).sum().backward()
    silent = [name for name, weight in cascade.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert [name for name in silent if "key_map.bias" not in name] == []  # which a softmax over places does not see


def test_templates_that_compete_share_every_place_out():
    cascade = CompetingCascade(8, num_templates=3, num_heads=2, compete="templates", located=False)
    given = places()
    view, templates = cascade.view(given), cascade.first(given.elements)
    shares = view.scores(cascade.block.query_map(templates)).softmax(dim=2)
    assert_close(cascade.weights(templates, view), shares / shares.sum(dim=3, keepdim=True))
    assert_close(shares.sum(dim=2), torch.ones(2, 2, 16))


@pytest.mark.parametrize("compete", ["elements", "templates", "both"])
def test_what_a_template_takes_adds_up_to_one(compete):
    cascade = CompetingCascade(8, num_templates=3, num_heads=2, compete=compete)
    attention = cascade.trace(places()).attention
    assert attention.shape == (3, 2, 2, 3, 16)
    assert_close(attention.sum(dim=-1), torch.ones(3, 2, 2, 3))


def test_located_templates_know_where_the_places_are():
    cascade = CompetingCascade(8, num_templates=3, num_heads=2)
    given = places()
    elsewhere = given._replace(grid=given.grid.flip(1))
    assert not torch.allclose(cascade(elsewhere), cascade(given))
    blind = CompetingCascade(8, num_templates=3, num_heads=2, located=False)
    assert torch.equal(blind(elsewhere), blind(given))


def test_peaks_come_before_the_slopes_beside_them():
    scores = torch.zeros(1, 25)
    scores[0, 6], scores[0, 7], scores[0, 18] = 5.0, 4.0, 1.0  # two neighbours on a slope, and a low peak
    assert highest_peaks(scores, 2).tolist() == [[6, 18]]
    assert highest_peaks(-torch.arange(25.0)[None], 25).sort().values.tolist() == [list(range(25))]


# The network


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_predicts_ten_vectors_between_zero_and_one(decoder):
    found = network(decoder).eval()(IMAGES)
    assert found.shape == (3, 10, 19)
    assert 0 <= float(found.detach().min()) <= float(found.detach().max()) <= 1


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_image_is_seen_without_its_neighbours(decoder):
    trained = network(decoder).eval()
    with torch.no_grad():
        assert_close(trained(IMAGES)[1:2], trained(IMAGES[1:2]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_weight_of_a_network_learns(decoder):
    trained = network(decoder)
    (trained(IMAGES) * torch.randn(3, 10, 19)).sum().backward()
    silent = [name for name, weight in trained.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert [name for name in silent if "key_map.bias" not in name] == []


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_network_is_written_and_read_back(decoder, tmp_path):
    trained = network(decoder, **({} if decoder == "attention" else {"num_test_steps": 5})).eval()
    trained.save_pretrained(tmp_path)
    again = SceneNetwork.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(IMAGES), trained(IMAGES))
    assert again.config == trained.config


@pytest.mark.parametrize("decoder", [decoder for decoder in DECODERS if decoder not in ("attention", "slots")])
def test_a_trained_network_may_take_more_steps(decoder):
    more, plain = network(decoder, num_test_steps=7), network(decoder)
    with torch.no_grad():
        assert torch.equal(more(IMAGES), plain(IMAGES))  # in training as many as were asked for
        assert not torch.allclose(more.eval()(IMAGES), plain.eval()(IMAGES))
        assert torch.equal(more.train()(IMAGES), plain.train()(IMAGES))


@pytest.mark.parametrize("decoder", DECODERS)
def test_what_is_shown_is_what_is_predicted_from(decoder):
    trained = network(decoder).eval()
    trace = trained.trace(IMAGES)
    if "descent" in decoder:
        assert trace is None
        return
    with torch.no_grad():
        assert_close(trace.templates[-1], trained.decode(trained.encoder(IMAGES)), atol=1e-5, rtol=1e-4)
    assert trace.attention.shape[-2:] == (10, 64)


def test_every_step_is_said_while_training_and_the_last_one_alone_after_that():
    trained = network("competing", every_step=True)
    steps = trained(IMAGES)
    assert steps.shape == (3, 3, 10, 19)
    with torch.no_grad():
        assert_close(steps[-1].detach(), trained.eval()(IMAGES), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("decoder", "option", "value", "needed"),
    [
        *(
            (decoder, option, value, "'competing'")
            for decoder in DECODERS
            if decoder != "competing"
            for option, value in {
                "compete": "elements", "located": False, "initial": "peaks", "mixed": True, "every_step": True
            }.items()
        ),
        *(
            (decoder, option, value, "'picaso' or 'attention' or 'competing'")
            for decoder in ("slots", "descent", "implicit-descent")
            for option, value in {"form": "paper", "norm": False}.items()
        ),
        ("attention", "num_steps", 4, "'picaso' or 'slots' or"),
        ("attention", "num_test_steps", 4, "'picaso' or 'slots' or"),
    ],
)  # fmt: skip
def test_an_option_that_would_change_nothing_is_refused(decoder, option, value, needed):
    with pytest.raises(
        ValueError, match=f"{option} needs decoder={needed}.*; got '{decoder}', where {option}={value!r} would change"
    ):
        network(decoder, **{option: value})


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_every_experiment_and_every_shipped_network_is_built(profile):
    for name in SCENES:
        assert experiment(name, profile=profile).task.build_network().num_steps
    for config in (Path(picaset.__file__).parent / "studio" / "weights").glob("scenes_*/config.json"):
        assert SceneNetwork(**json.loads(config.read_text())["config"]).num_steps


@pytest.mark.as_installed
def test_a_decoder_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"decoder must be one of 'picaso', .*'competing'; got 'lstm'"):
        network("lstm")
    with pytest.raises(ValueError, match=r"num_test_steps must not be negative; got -1"):
        network(num_test_steps=-1)


def test_only_an_implicit_descent_is_bounded_and_cut_and_goes_to_vectors_of_one_length():
    for kind in ("descent", "implicit-descent"):
        found, implicit = network(kind), kind == "implicit-descent"
        decoder = found.decoder
        assert isinstance(decoder, SetDescent)
        assert (decoder.implicit, decoder.bounded, decoder.clip > 0, decoder.momentum > 0) == (implicit,) * 4
        lengths = found.summary(found.encoder(IMAGES).elements).detach().norm(dim=1)
        assert bool((lengths - LENGTH).abs().max() < 1e-4) is implicit
