"""Operators and networks that are exported to ONNX give the same results in ONNX Runtime."""

from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

from picaset import export_onnx
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.networks.element_scorer import ElementScorer
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.set_predictor import POOLS, SetPredictor
from tests.operators import DIM, OPERATORS
from tests.random_sets import draw_sets

pytestmark = pytest.mark.as_installed

SIZES = ([7, 1, 5], [11, 0, 13, 2], [3], [0, 0], [40, 3])
"""Sizes of sets; none is traced."""


class Together(nn.Module):
    """Several modules in one file, since every export takes seconds, whatever it exports."""

    dim_in = DIM

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules.values())

    def forward(self, elements, mask):
        return tuple(part(elements, mask) for part in self.parts)


class Flat(nn.Module):
    """A network with several outputs, concatenated."""

    def __init__(self, network: nn.Module, **options) -> None:
        super().__init__()
        self.network = network
        self.options = options

    def forward(self, elements, mask):
        return torch.cat([part.flatten(1) for part in self.network(elements, mask, **self.options)], dim=1)


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    predictors = {f"SetPredictor {pool}": SetPredictor(DIM, 3, dim=8, pool=pool) for pool in POOLS}
    return {
        **predictors,
        "ElementScorer": ElementScorer(DIM, dim=8, num_heads=2),
        "MixtureProposer": Flat(MixtureProposer(dim_in=DIM, dim=8, num_heads=2), num_components=3),
        "MixtureNetwork": Flat(MixtureNetwork(dim_in=DIM, num_components=3, dim=8, num_heads=2)),
    }


def padded(sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    elements, mask = draw_sets(sizes, seed=1).padded()
    return elements.float(), mask


def run(path: Path, elements: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(str(path))
    return [
        torch.from_numpy(output) for output in session.run(None, {"elements": elements.numpy(), "mask": mask.numpy()})
    ]


def operators(*names: str) -> dict[str, nn.Module]:
    return {case.name: case.operator(torch.float32) for case in OPERATORS if case.name in names}


# One case of every operator, and of every code path; variants that only leave out a layer are not exported again.
GROUPS = {
    "blocks and encoders": lambda: operators(
        "MultiheadAttentionBlock paper", "MultiheadAttentionBlock authors with norm", "Elementwise", "SelfAttention",
        "InducedSelfAttention", "InducedSelfAttention with set norm and clean residuals", "Canonicalize",
    ),
    "pools": lambda: operators(
        "MeanPool", "SumPool", "MaxPool", "GatedAttentionPool with several templates", "FeaturewiseAttentionPool",
        "JanossyPool order 2", "SortPool", "AttentionPool", "PicasoPool projecting", "PicasoPool absorbing",
    ),
    "cascades": lambda: operators(
        "PicasoPool with separate steps", "GeneralizedPicaso elements", "SoftKMeans of points competing",
        "SoftKMeans of clusters competing", "em_step diagonal", "SlotAttention",
    ),
    "networks": lambda: operators("DeepSets", "SetTransformer", "Picaso"),
    "networks of estimators": networks,
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
@torch.no_grad()
def test_everything_exported_gives_the_same_for_sizes_other_than_those_traced(group: str, tmp_path: Path):
    modules = {name: module.eval() for name, module in GROUPS[group]().items()}
    export_onnx(Together(modules), tmp_path / "all.onnx")
    for sizes in SIZES:
        elements, mask = padded(sizes)
        for (name, module), output in zip(modules.items(), run(tmp_path / "all.onnx", elements, mask), strict=True):
            torch.testing.assert_close(
                output, module(elements, mask), rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )
