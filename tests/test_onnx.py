"""Operators and networks that are exported to ONNX give the same results in ONNX Runtime."""

from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import picaset
from picaset import MeanPool, PicasoPool, SetBatch, SetClassifier, export_onnx
from picaset.cli import main
from picaset.cli.export import DEFINING_NETWORKS
from picaset.lab.networks.bag_classifier import BagClassifier
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.element_scorer import ElementScorer
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.onnx import check_outputs
from picaset.networks.set_networks import PooledNetwork
from picaset.networks.set_predictor import SetPredictor
from picaset.operators.base import CascadePool, SetEncoder, SetPool
from picaset.pretrained import CLASSES
from tests.operators import CODE_PATHS, DIM, OPERATORS
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
    predictors = {f"SetPredictor {pool}": SetPredictor(DIM, 3, dim=8, pool=pool) for pool in ("picaso", "sum")}
    return {
        **predictors,
        "ElementScorer": ElementScorer(DIM, dim=8, num_heads=2),
        "MixtureProposer": Flat(MixtureProposer(dim_in=DIM, dim=8, num_heads=2), num_components=3),
        "BagClassifier": BagClassifier(DIM, 3, dim=8, num_heads=2),
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
    cases = {case.name: case for case in OPERATORS}
    return {name: cases[name].operator(torch.float32) for name in names}


GROUPS = {name: partial(operators, *names) for name, names in CODE_PATHS.items()} | {"networks of estimators": networks}


def test_every_public_operator_and_every_network_of_sets_is_exported():
    for module in DEFINING_NETWORKS:
        import_module(module)
    exported = {type(part) for build in GROUPS.values() for module in build().values() for part in module.modules()}
    public = (getattr(picaset, name) for name in picaset.__all__)
    operators_and_networks = {module for module in public if isinstance(module, type) and issubclass(module, nn.Module)}
    bases = {SetPool, SetEncoder, CascadePool, PooledNetwork}
    saved = {
        network
        for network in CLASSES.values()
        if network.__module__.startswith("picaset.")
        and list(signature(network.forward).parameters)[1:3] == ["elements", "mask"]
    }
    missing = (operators_and_networks | saved) - bases - exported
    assert {network.__name__ for network in missing} == set()


@pytest.mark.parametrize("group", GROUPS)
@torch.no_grad()
def test_everything_exported_gives_the_same_for_sizes_other_than_those_traced(group: str, tmp_path: Path):
    modules = {name: module.eval() for name, module in GROUPS[group]().items()}
    export_onnx(Together(modules), tmp_path / "all.onnx")
    assert {node.domain for node in onnx.load(tmp_path / "all.onnx").graph.node} <= {"", "pkg.onnxscript.torch_lib"}
    for sizes in SIZES:
        elements, mask = padded(sizes)
        for (name, module), output in zip(modules.items(), run(tmp_path / "all.onnx", elements, mask), strict=True):
            torch.testing.assert_close(
                output, module(elements, mask), rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_the_network_of_a_fitted_classifier_is_exported_by_the_command(tmp_path: Path, capsys):
    random = np.random.default_rng(0)
    bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(30)]
    classifier = SetClassifier(method="network", num_networks=1, dim=8, max_iter=2, random_state=0)
    classifier.fit(bags, [len(bag) % 2 for bag in bags]).save(tmp_path / "classifier")
    assert main(["export", str(tmp_path / "classifier"), str(tmp_path / "network.onnx")]) == 0
    shown = capsys.readouterr()
    assert "SetPredictor with inputs elements and mask, outputs output" in shown.out
    assert "elements are standardized" in shown.out
    assert shown.err == ""
    standardized = [torch.as_tensor((bag - classifier.mean_) / classifier.scale_).float() for bag in bags]
    (logits,) = run(tmp_path / "network.onnx", *SetBatch.from_list(standardized).to_padded())
    np.testing.assert_allclose(logits[:, 0].softmax(dim=1), classifier.predict_proba(bags), atol=1e-5)
    description = onnx.load(tmp_path / "network.onnx").graph
    shapes = {value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
              for value in (*description.input, *description.output)}  # fmt: skip
    assert shapes == {"elements": ["B", "N", 2], "mask": ["B", "N"], "output": ["B", 1, 2]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classifier", "network.onnx"]


def test_an_estimator_of_several_networks_says_which_can_be_exported(tmp_path: Path, monkeypatch, capsys):
    random = np.random.default_rng(0)
    bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(30)]
    classifier = SetClassifier(method="network", num_networks=2, dim=8, max_iter=2, random_state=0)
    classifier.fit(bags, [len(bag) % 2 for bag in bags]).save(tmp_path / "classifier")
    assert main(["export", str(tmp_path / "classifier"), str(tmp_path / "network.onnx")]) == 1
    assert f"holds 2 networks; export one of them, such as {tmp_path}/classifier/network_0" in capsys.readouterr().err
    monkeypatch.setattr("picaset.cli.export.export_onnx", lambda network, path, **options: ("output",))
    assert main(["export", str(tmp_path / "classifier/network_0"), str(tmp_path / "network.onnx")]) == 0
    assert f"as in {tmp_path}/classifier/estimator.json" in capsys.readouterr().out


def test_modules_that_cannot_be_exported_raise_a_one_line_error(tmp_path: Path, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise RuntimeError("no such operator\nand a long explanation") from ValueError("the cause\nat length")

    with pytest.raises(
        ValueError, match=r"MeanPool accepts elements of any width; say which: export_onnx\(..., dim_in="
    ):
        export_onnx(MeanPool(), tmp_path / "x.onnx")
    with pytest.raises(
        ValueError, match=r"Linear cannot be exported to ONNX: its forward must begin with \(elements, mask"
    ):
        export_onnx(nn.Linear(2, 3), tmp_path / "x.onnx")
    with pytest.raises(
        ValueError, match="MixtureProposer cannot be exported to ONNX without num_components, which its"
    ):
        export_onnx(MixtureProposer(), tmp_path / "x.onnx")
    with pytest.raises(TypeError, match=r"expected a torch module; got Fitted; pass estimator.network_ of a fitted"):
        export_onnx(type("Fitted", (), {"network_": None})(), tmp_path / "x.onnx")
    ViewClassifier(5).save_pretrained(tmp_path / "pictures")
    assert main(["export", str(tmp_path / "pictures"), str(tmp_path / "x.onnx")]) == 1
    assert "ViewClassifier cannot be exported to ONNX: its forward must begin with" in capsys.readouterr().err
    monkeypatch.setattr(torch.onnx, "export", fail)
    pool = PicasoPool(4, num_templates=1, num_heads=2)
    with pytest.raises(ValueError, match=r"^PicasoPool cannot be exported to ONNX: the cause$"):
        export_onnx(pool, tmp_path / "x.onnx")
    assert pool.training
    assert not (tmp_path / "x.onnx").exists()


def test_the_command_takes_what_a_module_does_not_say(tmp_path: Path, monkeypatch, capsys):
    file = tmp_path / "x.onnx"
    modules = {"dim_in": (MeanPool(), DIM), "num_components": (MixtureProposer(dim_in=DIM, dim=8, num_heads=2), 3)}
    for name, (module, _) in modules.items():
        module.save_pretrained(tmp_path / name)
        assert main(["export", str(tmp_path / name), str(file)]) == 1
        assert name.replace("_", "-") in capsys.readouterr().err
    assert main(["export", str(tmp_path / "dim_in"), str(file), "--dim-in", "3", "--num-components", "2"]) == 1
    assert "MeanPool cannot be exported to ONNX: " in capsys.readouterr().err
    passed = list[dict[str, int]]()
    monkeypatch.setattr("picaset.cli.export.export_onnx", lambda network, path, **options: passed.append(options) or ())
    for name, (_, number) in modules.items():
        assert main(["export", str(tmp_path / name), str(file), f"--{name.replace('_', '-')}", str(number)]) == 0
    assert passed == [{"dim_in": DIM}, {"dim_in": None, "num_components": 3}]


def test_a_folder_of_another_program_is_refused(tmp_path: Path, capsys):
    PicasoPool(4, num_templates=1, num_heads=2).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("PicasoPool", "SomethingElse"))
    assert main(["export", str(tmp_path), str(tmp_path / "x.onnx")]) == 1
    assert "holds a SomethingElse, which is not a network of picaset" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [1.0, torch.nan, -torch.inf])
def test_a_file_that_gives_other_numbers_is_refused(wrong: float):
    class Session:
        def run(self, names, inputs):
            return [inputs["elements"].mean(axis=1, keepdims=True) + wrong]

    with pytest.raises(ValueError, match="ONNX Runtime gives another output; the largest difference is"):
        check_outputs(Session(), MeanPool(), (torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)))
