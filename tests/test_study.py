"""The controlled study: arms that differ in one thing alone, and that train."""

from dataclasses import replace

import pytest
import torch

from picaset.lab.experiments import experiment
from picaset.lab.experiments.study import CASCADES, CLUSTERING_POOLS, FACES, STUDY, VIEWPOINT_POOLS
from picaset.lab.networks.mixture_network import MixingPicasoPool, MixtureNetwork, mixture_steps
from picaset.networks.element_scorer import ElementScorer
from picaset.operators.picaso import PicasoPool


@pytest.mark.parametrize(
    ("arms", "may_differ"),
    [
        ([task.network for task in CLUSTERING_POOLS.values()], {"pool", "num_steps"}),
        ([task.network for task in CASCADES.values()], {"pool", "num_steps", "encoder", "num_inducing"}),
        ([task.network for task in VIEWPOINT_POOLS.values()], {"pool"}),
        (list(FACES.values()), {"pool", "comparison"}),
    ],
)
def test_the_networks_of_a_comparison_differ_in_the_pool_alone(arms, may_differ):
    first = dict(arms[0].arguments)
    for arm in arms[1:]:
        assert {name for name, value in arm.arguments if first[name] != value} <= may_differ


@pytest.mark.parametrize("prefix", ["clustering-pool", "clustering-cascade", "viewpoints-azimuth-pool", "odd-one-out"])
def test_the_arms_of_a_comparison_are_trained_alike_on_the_same_data(prefix):
    first, *others = (experiment(name, profile="study") for name in STUDY if name.startswith(prefix))
    for other in others:
        assert other.training == first.training
        alike = {"network": first.task.network}
        if prefix == "clustering-cascade":  # an arm of its own is whether every step is trained
            alike["every_step"] = first.task.every_step
        assert replace(other.task, **alike) == first.task


def test_templates_that_do_not_mix_are_the_plain_cascade():
    torch.manual_seed(0)
    pool = MixingPicasoPool(8, num_templates=3, num_heads=2, num_steps=2, form="authors")
    plain = PicasoPool(8, num_templates=3, num_heads=2, num_steps=2, form="authors")
    plain.load_state_dict({name: value for name, value in pool.state_dict().items() if "mixing" not in name})
    elements = torch.randn(2, 5, 8)
    pool.mixing.encode = lambda templates, mask: templates
    assert torch.equal(pool(elements), plain(elements))


@pytest.mark.parametrize("every_step", [False, True])
def test_mixing_is_part_of_the_prediction_and_is_trained(every_step):
    task = CASCADES["steps3-every-mixing" if every_step else "steps3-mixing"]
    network, batch = task.build_network(), task.batch(0, seed=0, num_examples=2, progress=0.0)
    task.loss(network, batch).backward()
    (pool,) = (module for module in network.modules() if isinstance(module, MixingPicasoPool))
    assert all(parameter.grad is not None for parameter in pool.mixing.parameters())
    last = mixture_steps(network, batch[0]).mixtures[-1]
    torch.testing.assert_close(tuple(network(batch[0])), tuple(last))


class Fixed(torch.nn.Module):
    """A network that returns the same mixture for every input."""

    def __init__(self, mixture):
        super().__init__()
        self.mixture = mixture

    def forward(self, points):
        return self.mixture


@pytest.mark.parametrize("pool", ["picaso", "mixing-picaso"])
def test_the_loss_of_every_step_is_the_mean_over_the_steps(pool):
    task = next(task for task in CASCADES.values() if task.every_step)
    task = replace(task, network=task.network.replace(num_steps=3, pool=pool, dim=16))
    network, (points,) = task.build_network(), task.batch(0, seed=0, num_examples=2, progress=0.0)
    assert isinstance(network, MixtureNetwork)
    last = replace(task, every_step=False)
    losses = [last.loss(Fixed(mixture), (points,)) for mixture in mixture_steps(network, points).mixtures[1:]]
    torch.testing.assert_close(task.loss(network, (points,)), torch.stack(losses).mean())


@pytest.mark.parametrize("comparison", ["difference", "mapped-difference", "concatenation"])
@pytest.mark.parametrize("pool", ["none", "mean", "attention", "picaso", "generalized"])
def test_every_pool_and_comparison_scores_elements_in_any_order(pool, comparison):
    torch.manual_seed(0)
    scorer = ElementScorer(3, dim=8, num_heads=2, pool=pool, comparison=comparison)
    elements, order = torch.randn(2, 6, 3), torch.randperm(6)
    torch.testing.assert_close(scorer(elements)[:, order], scorer(elements[:, order]))


def test_without_a_pool_and_an_encoder_an_element_is_scored_by_itself():
    scorer = ElementScorer(3, dim=8, num_heads=2, pool="none", encoder="elementwise")
    elements = torch.randn(2, 6, 3)
    torch.testing.assert_close(scorer(elements)[:, :1], scorer(elements[:, :1]))
