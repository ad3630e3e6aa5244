"""Networks that score every element of a set: the laws they keep, on vectors and on images."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from picaset import SetBatch
from picaset.lab.networks.image_stems import LightStem, NineConvolutions, image_stem, to_float_images
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.networks.element_scorer import ElementScorer

ROWS = list(product(["elementwise", "self", "elementwise+self"], ["attention", "picaso", "generalized"]))
every_row = pytest.mark.parametrize(("encoder", "pool"), ROWS)
SIZES = [7, 1, 5]


def scorer_of(encoder: str, pool: str, **options) -> ElementScorer:
    torch.manual_seed(0)
    return ElementScorer(3, dim=8, num_heads=2, encoder=encoder, pool=pool, **options).double().eval()


def padded_sets() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    return torch.randn(len(SIZES), max(SIZES), 3, generator=generator, dtype=torch.float64), mask


@every_row
def test_reordering_the_elements_reorders_the_scores(encoder, pool):
    elements, mask = padded_sets()
    order = torch.randperm(elements.shape[1], generator=torch.Generator().manual_seed(2))
    scorer = scorer_of(encoder, pool)
    assert_close(scorer(elements[:, order], mask[:, order]), scorer(elements, mask)[:, order])


@every_row
def test_what_the_padding_holds_is_never_read_and_scores_minus_infinity(encoder, pool):
    elements, mask = padded_sets()
    scorer = scorer_of(encoder, pool)
    scores = scorer(elements.masked_fill(~mask[..., None], torch.nan), mask)
    assert_close(scores, scorer(elements, mask))
    assert (scores[~mask] == -torch.inf).all()
    assert scores[mask].isfinite().all()
    scores.log_softmax(dim=1)[:, 0].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in scorer.parameters() if parameter.grad is not None)


@every_row
def test_packed_padded_and_one_at_a_time_give_the_same_scores(encoder, pool):
    elements, mask = padded_sets()
    scorer = scorer_of(encoder, pool)
    expected = scorer(elements, mask)[mask]
    assert_close(scorer(SetBatch.from_padded(elements, mask)), expected)
    alone = [scorer(one[None, here])[0] for one, here in zip(elements, mask, strict=True)]
    assert_close(torch.cat(alone), expected)


@every_row
@pytest.mark.parametrize("size", [0, 1, 3, 64])
def test_a_set_of_any_size_has_as_many_scores(encoder, pool, size):
    assert scorer_of(encoder, pool)(torch.zeros(2, size, 3, dtype=torch.float64)).shape == (2, size)


@every_row
def test_moving_one_element_of_an_attending_set_moves_the_scores_of_the_others(encoder, pool):
    # Scores are relative to the set: even without attention among the elements, what they are compared with moves.
    elements, _ = padded_sets()
    moved = elements.clone()
    moved[:, 0] += 10
    scorer = scorer_of(encoder, pool)
    assert not torch.allclose(scorer(moved)[:, 1:], scorer(elements)[:, 1:])


def test_one_step_of_the_cascade_is_attention_pooling():
    elements, mask = padded_sets()
    cascade, attention = scorer_of("self", "picaso", num_steps=1), scorer_of("self", "attention")
    attention.load_state_dict(cascade.state_dict())
    assert_close(cascade(elements, mask), attention(elements, mask))


def test_a_scorer_read_back_gives_the_same_scores(tmp_path):
    scorer = scorer_of("elementwise+self", "generalized", num_templates=2, num_decoder_blocks=1, form="authors")
    scorer.save_pretrained(tmp_path)
    elements, mask = padded_sets()
    assert torch.equal(ElementScorer.from_pretrained(tmp_path)(elements, mask), scorer(elements, mask))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "induced"}, "encoder must be one of 'elementwise', 'self', 'elementwise\\+self'; got 'induced'"),
        ({"pool": "median"}, "pool must be one of 'attention', 'picaso', 'generalized', 'mean', 'none'; got 'median'"),
        (
            {"encoder": "elementwise+self", "num_encoder_blocks": 1},
            "encoder 'elementwise\\+self' needs at least 2 encoder blocks; got 1",
        ),
        ({"num_templates": 0}, "num_templates must be at least 1; got 0"),
        ({"num_heads": 3}, "num_heads must divide dim; got num_heads=3 and dim=256"),
    ],
)
@pytest.mark.as_installed
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ElementScorer(3, **options)


# Images


def image_network(**options) -> OddOneOutNetwork:
    torch.manual_seed(0)
    return OddOneOutNetwork(dim=8, num_heads=2, **options).eval()


def some_images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, (*shape, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("stem", ["light", "narrow", "nine"])
def test_reordering_the_images_reorders_the_scores(stem):
    images, network = some_images(2, 4), image_network(stem=stem)
    assert_close(network(images[:, [2, 0, 3, 1]]), network(images)[:, [2, 0, 3, 1]])


def test_absent_images_are_never_read_forward_or_backward():
    images, network = some_images(2, 4) / 255, image_network()
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    poisoned = images.masked_fill(~mask[..., None, None, None], torch.nan)
    scores = network(poisoned, mask)
    assert_close(scores, network(images, mask))
    scores.log_softmax(dim=1)[:, 0].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters() if parameter.grad is not None)


def test_a_single_image_is_a_set():
    assert image_network()(some_images(1, 1)).isfinite().all()


def test_bytes_and_numbers_from_0_to_1_are_the_same_images():
    images, network = some_images(1, 3), image_network()
    assert_close(network(images / 255), network(images))
    assert to_float_images(images, like=torch.zeros(())).abs().max() <= 2


def test_sets_from_an_album_score_like_sets_of_their_own():
    images, network = some_images(2, 6), image_network()
    members = torch.tensor([[[0, 1, 2], [3, 2, 5]], [[5, 4, 0], [1, 0, 2]]])
    alone = torch.stack([network(images[[album]][:, one]) for album in (0, 1) for one in members[album]])
    assert_close(network(images, members=members), alone.reshape(2, 2, 3))


def test_the_papers_stem_has_nine_convolutions_and_three_maxima_and_256_features():
    stem = NineConvolutions()
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in stem) == 9
    assert sum(isinstance(layer, torch.nn.MaxPool2d) for layer in stem) == 3
    assert stem(torch.zeros(1, 3, 64, 64)).shape == (1, 256)


def test_the_narrow_stem_has_less_than_three_tenths_of_the_parameters_of_the_light_one():
    light, narrow = (image_stem(kind, 256, caller="test") for kind in ("light", "narrow"))
    light_count, narrow_count = (sum(weight.numel() for weight in stem.parameters()) for stem in (light, narrow))
    assert narrow_count < 0.3 * light_count
    assert narrow(torch.zeros(1, 3, 64, 64)).shape == (1, 256)


@pytest.mark.parametrize("stem", [LightStem, NineConvolutions])
def test_the_vector_of_an_image_depends_on_that_image_alone_while_training_too(stem):
    network = stem(8).train()
    images = torch.randn(3, 3, 64, 64)
    assert_close(network(images)[1:2], network(images[1:2]))


@pytest.mark.parametrize(
    ("images", "message", "kind"),
    [
        (torch.zeros(5, 3, 64, 64), r"\(B, N, 3, S, S\); got \(5, 3, 64, 64\). One set is a batch of one", ValueError),
        (torch.zeros(1, 5, 64, 64, 3), r"\(B, N, 3, S, S\); got \(1, 5, 64, 64, 3\)", ValueError),
        (torch.zeros(1, 5, 3, 64, 64, dtype=torch.int64), "bytes, or numbers from 0 to 1; got torch.int64", TypeError),
    ],
)
@pytest.mark.as_installed
def test_images_of_another_shape_or_kind_are_refused(images, message, kind):
    with pytest.raises(kind, match=message):
        image_network()(images)


@pytest.mark.as_installed
def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"mask must have shape \(B, N\) = \(1, 5\)"):
        image_network()(torch.zeros(1, 5, 3, 64, 64), torch.ones(1, 4, dtype=torch.bool))


@pytest.mark.as_installed
def test_an_unknown_stem_is_refused():
    with pytest.raises(ValueError, match="stem must be one of 'light', 'narrow', 'nine'; got 'resnet'"):
        OddOneOutNetwork(stem="resnet")
