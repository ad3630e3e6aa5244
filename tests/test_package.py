"""The package as a whole: exported names, imports, dependencies, documentation."""

import ast
import inspect
import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import picaset

PACKAGE = Path(picaset.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ROOT = PACKAGE.parent
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# A module may import from the modules before it in these lists. The library comes first, so that it does not import
# from the laboratory, the studio or the command line.
LAYERS = [
    "checks", "extras", "files", "array_files", "figures", "terminal", "threads", "hub", "pretrained",
    "sets", "operators", "large", "networks", "tables", "estimators", "__init__", "models", "integrations", "lab",
    "studio", "cli", "__main__",
]  # fmt: skip
WITHIN_LAB = ["data", "networks", "tasks", "training", "experiments", "reports"]
WITHIN_OPERATORS = [
    "state", "set_norm", "buckets", "attention", "packed_attention", "base", "triton_attention", "native_attention",
    "fused", "block", "encoders", "simple_pools",
    "picaso", "attention_pools", "janossy_pool", "sort_pool", "slot_attention", "soft_kmeans", "mixture",
    "canonicalize",
]  # fmt: skip

# Signatures with their defaults; "..." stands for the keywords of the block.
DESIGNED = {
    "MultiheadAttentionBlock": "dim_queries, dim_elements, dim, *, num_heads, form='paper', norm=False, "
    "residual=True, feed_forward=True",
    "SelfAttention": "dim_in, dim, *, num_heads, ...",
    "InducedSelfAttention": "dim_in, dim, *, num_heads, num_inducing, ...",
    "AttentionPool": "dim, *, num_templates, num_heads, ...",
    "PicasoPool": "dim, *, num_templates, num_heads, num_steps=3, ...",
    "GeneralizedPicaso": "dim, *, num_templates, num_heads, num_steps=3, ...",
    "SlotAttention": "dim, *, num_slots, num_steps=3",
    "SoftKMeans": "dim, *, num_templates, num_steps=3",
    "Canonicalize": "network, restore",
    "DeepSets": "dim_in, dim_out, *, dim=128, pool='mean', num_outputs=1",
    "SetTransformer": "dim_in, dim_out, *, dim=128, num_heads=4, num_inducing=32, num_outputs=1, num_decoder_blocks=1",
    "Picaso": "dim_in, dim_out, *, dim=128, num_heads=4, encoder='induced', num_inducing=32, num_outputs=1, "
    "num_steps=3, num_decoder_blocks=1",
    "SetBatch": "elements, offsets, weights",
}


@pytest.mark.parametrize("name", DESIGNED)
def test_public_names_have_the_designed_signature(name: str):
    parameters = inspect.signature(getattr(picaset, name)).parameters
    positional, _, keywords = (part.strip(" ,") for part in DESIGNED[name].partition("*"))
    by_position = [key for key, value in parameters.items() if value.kind is value.POSITIONAL_OR_KEYWORD]
    assert by_position == positional.split(", ")
    for word in filter(None, keywords.split(", ")):
        if word == "...":
            assert any(value.kind is value.VAR_KEYWORD for value in parameters.values())
            continue
        key, _, default = word.partition("=")
        assert parameters[key].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[key].default == (ast.literal_eval(default) if default else inspect.Parameter.empty)


@pytest.mark.parametrize("name", ["AttentionPool", "PicasoPool", "GeneralizedPicaso"])
def test_operators_made_of_blocks_pass_on_the_keywords_of_the_block(name: str):
    options = {"form": "authors", "norm": True, "residual": False, "feed_forward": False}
    operator = getattr(picaset, name)(4, num_templates=2, num_heads=2, **options)
    (block,) = (module for module in operator.modules() if isinstance(module, picaset.MultiheadAttentionBlock))
    assert (block.form, block.residual, block.feed_forward) == ("authors", False, False)


def undocumented(public: object) -> list[str]:
    """Names of what lacks a docstring: a function, or a class and its public methods and properties.

    A docstring inherited from outside the package does not count; an override may inherit that of the package.
    """
    if not isinstance(public, type):
        return [] if getattr(public, "__doc__", None) else [getattr(public, "__name__", repr(public))]
    ours = [base for base in public.__mro__ if base.__module__.startswith("picaset")]
    missing = [] if public.__dict__.get("__doc__") else [public.__name__]
    members = {name for base in ours for name, member in vars(base).items() if is_method(member)}
    for name in sorted(name for name in members if not name.startswith("_")):
        if not any(getattr(vars(base).get(name), "__doc__", None) for base in ours):
            missing.append(f"{public.__name__}.{name}")
    return missing


def is_method(member: object) -> bool:
    return isinstance(member, (FunctionType, classmethod, staticmethod, property, cached_property))


@pytest.mark.parametrize("name", picaset.__all__)
def test_every_exported_name_exists_and_is_documented(name: str):
    assert undocumented(getattr(picaset, name)) == []


def test_a_docstring_from_outside_the_package_does_not_count():
    class Outside:
        """Documented."""

        def method(self):
            """Documented."""

    Outside.__module__ = "elsewhere"

    class Inside(Outside):
        def method(self): ...

    Inside.__module__ = "picaset.inside"
    assert inspect.getdoc(Inside) == inspect.getdoc(Outside)
    assert undocumented(Inside) == ["Inside", "Inside.method"]


def test_dir_shows_the_public_names_and_no_others():
    assert [name for name in dir(picaset) if not name.startswith("__")] == sorted(picaset.__all__)
    assert {"__all__", "__doc__", "__version__"} <= set(dir(picaset))


def docstrings(path: Path) -> list[str]:
    """All string literals of a file that stand as statements: docstrings, and descriptions of constants and fields."""
    nodes = ast.walk(ast.parse(path.read_text()))
    constants = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [constant.value.strip() for constant in constants if isinstance(constant.value, str)]


@pytest.mark.parametrize("path", FILES + TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_docstring_begins_without_its_subject(path: Path):
    assert [text for text in docstrings(path) if text.startswith(("Of ", "What ", "Whose ", "It, "))] == []


def imports_of(path: Path) -> list[str]:
    """Return the picaset modules that a file imports, without the name of the package."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "picaset":
            found.append(node.module.removeprefix("picaset").removeprefix(".") or "__init__")
        if isinstance(node, ast.Import):
            found += [name.name.removeprefix("picaset.") for name in node.names if name.name.startswith("picaset.")]
    return found


def position(layers: list[str], name: str) -> int:
    assert name in layers, f"{name} has no place in the order of imports"
    return layers.index(name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    for module in imports_of(path):
        target = module.split(".")
        assert position(LAYERS, target[0]) <= position(LAYERS, parts[0]), f"{path} imports {module}"
        within = {"operators": WITHIN_OPERATORS, "lab": WITHIN_LAB}.get(parts[0])
        if target[0] == parts[0] and within is not None and parts[1] != "__init__" and len(target) > 1:
            ours, theirs = position(within, parts[1]), position(within, target[1])
            assert theirs < ours or (parts[0] == "lab" and theirs == ours), f"{path} imports {module}"


CORE = ["torch", "numpy", "safetensors", "jaxtyping", "tyro", "rich"]
EXTRAS = ["scipy", "sklearn", "matplotlib", "PIL", "jinja2", "lightning_fabric", "torchmetrics", "fastapi", "uvicorn",
          "starlette", "pydantic", "beartype", "torch_geometric", "tensorboard", "pyarrow", "hypothesis",
          "pandas", "huggingface_hub", "onnx", "onnxscript", "onnxruntime", "lightning", "skorch"]  # fmt: skip


def run_without_extras(code: str, *, but: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which all optional packages except some are missing."""
    blocked = [name for name in EXTRAS if name not in but]
    block = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True)


def test_the_core_needs_no_extra():
    finished = run_without_extras("import torch, picaset; print(picaset.Picaso(2, 3)(torch.zeros(1, 5, 2)).shape)")
    assert finished.stdout.strip() == "torch.Size([1, 1, 3])", finished.stderr


def command(*arguments: str) -> str:
    return f"from picaset.cli import main; sys.exit(main({list(arguments)!r}))"


EXPERIMENTS_EXTRA = "install it with: pip install 'picaset[experiments]'\n"
REFUSED = {
    "tour": (command("tour"), f"picaset: drawing figures needs matplotlib; {EXPERIMENTS_EXTRA}"),
    "train": (
        command("train", "clustering-ours", "--profile", "smoke"),
        f"picaset: training needs lightning_fabric; {EXPERIMENTS_EXTRA}",
    ),
    "studio": (
        command("studio", "--no-browser"),
        "picaset: the studio needs fastapi; install it with: pip install 'picaset[studio]'\n",
    ),
    "onnx": (
        "from picaset import MeanPool, export_onnx; export_onnx(MeanPool(), 'x.onnx', dim_in=2)",
        "MissingExtraError: exporting to ONNX needs onnx; install it with: pip install 'picaset[onnx]'",
    ),
    "hub": (
        "from picaset import MeanPool; MeanPool.from_pretrained('org/name')",
        "MissingExtraError: there is no folder org/name; loading it by name needs huggingface_hub; install it with: "
        "pip install 'picaset[hub]'",
    ),
    "pyg": (
        "import picaset.integrations.pyg",
        "MissingExtraError: picaset.integrations.pyg needs torch_geometric; install it with: "
        "pip install torch-geometric",
    ),
}
"""Code that needs an extra, and the error that it ends with: of a command, all that it prints."""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory) -> dict[str, tuple[int, str]]:
    """Exit status and error output of the code in ``REFUSED``, one after the other in a process without extras."""
    code = f"""
import contextlib, io, json, os, traceback
os.chdir({str(tmp_path_factory.mktemp("refused"))!r})
results = dict()
for name, code in { ({name: code for name, (code, _) in REFUSED.items()})!r}.items():
    with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code, dict(sys=sys))
            status = 0
        except SystemExit as stopped:
            status = stopped.code
        except ImportError:
            traceback.print_exc()
            status = 1
    results[name] = status, printed.getvalue()
print(json.dumps(results))
"""
    finished = run_without_extras(code)
    assert finished.returncode == 0, finished.stderr
    return {name: (status, printed) for name, (status, printed) in json.loads(finished.stdout).items()}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_an_extra_says_which(refusals, name: str):
    status, printed = refusals[name]
    message = REFUSED[name][1]
    assert status == 1
    assert printed == message if message.startswith("picaset: ") else printed.strip().endswith(message)


def test_rooms_of_the_studio_need_the_extras_of_the_studio_alone():
    code = "from picaset.studio.rooms import *; print([room.title for room in build_rooms(Settings())])"
    own = ["fastapi", "uvicorn", "starlette", "pydantic", "sklearn", "scipy", "PIL"]
    rooms = run_without_extras(code, but=own).stdout
    assert all(f"'{title}'" in rooms for title in ("Cluster", "Odd one out", "Runs"))


def test_the_core_dependencies_are_those_declared():
    declared = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    assert sorted(name.split(">")[0] for name in declared["dependencies"]) == sorted(CORE)


def test_the_wheel_carries_types_weights_and_nothing_of_the_tests(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=PACKAGE.parent,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "picaset/py.typed" in names
    assert "picaset/weights/walking_templates/model.safetensors" in names
    assert "picaset/studio/weights/odd_one_out_faces/model.safetensors" in names
    assert {"picaset/studio/static/uplot/LICENSE", "picaset/studio/rooms/cluster/section.html"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"picaset"}
