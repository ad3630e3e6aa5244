"""Is this a release that installs? Builds it, and uses it as a stranger would, outside of the clone.

    python -m tests.release_check                     about ten minutes; 'make release-check'
    python -m tests.release_check --extras onnx all   some of the extras

Checks that the versions agree, builds sdist and wheel, and installs the wheel in empty environments: with the core
dependencies alone, with each extra, and with all of them, where README and the first page of the site are followed
word for word: every Python example and every command, up to the page of the studio.

torch is installed first and alone, by its pin: asked for by another package, pip may take a build with gigabytes of
libraries for GPUs. It is installed once, in an environment that all others see; nothing else is shared.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.test_documents import BLOCK

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
LARGEST_WHEEL = 8_000_000
"""Bytes."""
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "index.md"]
CORE = """
import importlib.util, picaset, torch
assert not importlib.util.find_spec("sklearn") and not importlib.util.find_spec("matplotlib"), "not the core alone"
assert picaset.MeanPool()(torch.ones(1, 3, 2)).shape == (1, 1, 2)
try:
    picaset.AmortizedMixture
except ImportError as error:
    assert "picaset[estimators]" in str(error), error
"""
USES_OF_EXTRAS = {
    "tables": """
import pyarrow, pyarrow.parquet, torch
from picaset import MeanPool, stream
pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 3.0]}), "points.parquet")
assert stream(MeanPool(), "points.parquet").item() == 2
""",
    "estimators": """
import numpy as np
from picaset import AmortizedMixture, SetAnomalyDetector, SetClassifier
points = np.concatenate([np.random.default_rng(0).normal(size=(100, 2)) + shift for shift in (0, 9)])
assert AmortizedMixture(random_state=0).fit(points).n_components_ == 2
from picaset.cli import main
assert main(["cluster", "--example", "--set", "island", "--labels", "labels.csv"]) == 0
""",
    "experiments": """
from picaset.cli import main
assert main(["train", "clustering-ours", "--profile", "smoke"]) == 0
assert main(["report"]) == 0
""",
    "studio": "studio",
    "hub": """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
from picaset import MeanPool
try:
    MeanPool.from_pretrained("org/name")
except Exception as error:
    assert "picaset[hub]" not in str(error) and "org/name" in str(error), error
else:
    raise AssertionError("there is no network org/name")
""",
    "onnx": """
from picaset import PicasoPool, export_onnx
export_onnx(PicasoPool(8, num_templates=2, num_heads=2), "pool.onnx")
""",
    "ray": """
import ray, torch
from picaset import MeanPool, stream
import picaset.integrations.ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
assert stream(MeanPool(), ray.data.from_items([{"x": 1.0}, {"x": 3.0}])).item() == 2
""",
    "all": "documents",
}
"""Check of each extra: a program, or the name of a longer check."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", nargs="*", choices=USES_OF_EXTRAS, default=list(USES_OF_EXTRAS))
    parser.add_argument("--out", type=Path, help="empty folder in which the checked sdist and wheel are kept")
    parser.add_argument("--tag", help="tag of the release, such as v0.2.0, which must agree with the version")
    arguments = parser.parse_args()
    version = agreed_version()
    if arguments.tag not in (None, f"v{version}"):
        raise SystemExit(f"the tag must be v{version}, the version of the package; got {arguments.tag}.")
    print("version", version)
    with tempfile.TemporaryDirectory(prefix="picaset-release-") as folder:
        wheel = build(Path(folder, "dist") if arguments.out is None else empty_folder(arguments.out))
        torch = create_environment(Path(folder, "torch"))
        torch.run("pip", "install", torch_pin())
        core = create_environment(Path(folder, "core"), torch)
        core.run("pip", "install", str(wheel))
        core.run("python", "-c", CORE)
        core.run("python", "-c", first_python_example(ROOT / "README.md"))
        print("core alone: the operators work, and what needs an extra says which")
        for extra in arguments.extras:
            begin = time.monotonic()
            check_extra(extra, torch, wheel)
            print(f"picaset[{extra}]: {time.monotonic() - begin:.0f} s")
    print("ready for release")
    return 0


def agreed_version() -> str:
    """Return the version on which the package, the changelog and the citation agree."""
    places = {
        "picaset/__init__.py": r'^__version__ = "(.+)"$',
        "CHANGELOG.md": r"^## (\d\S*)",
        "CITATION.cff": r"^version: (.+)$",
    }
    versions = {name: re.search(pattern, (ROOT / name).read_text(), re.MULTILINE) for name, pattern in places.items()}
    found = {name: match[1] if match else None for name, match in versions.items()}
    if len(set(found.values())) > 1 or None in found.values():
        raise SystemExit(f"versions must agree; got {found}. Set all of them to the version of the release.")
    return next(iter(found.values())) or ""


def empty_folder(folder: Path) -> Path:
    """Return the absolute path of a folder, which must be empty: everything in it is published."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} must be empty; remove it, since everything in it is published.")
    return folder.resolve()


def build(folder: Path) -> Path:
    """Build sdist and wheel, the wheel from the sdist, and return the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    if wheel.stat().st_size > LARGEST_WHEEL:
        raise SystemExit(f"the wheel must be at most {LARGEST_WHEEL / 1e6:.0f} MB; remove or shrink shipped weights.")
    return wheel


def torch_pin() -> str:
    return next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))


class Environment:
    """A virtual environment with a working folder of its own, which knows nothing of the clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        programs = folder / ("Scripts" if os.name == "nt" else "bin")
        self.variables = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PICASET_DATA")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(CONSTRAINTS),
            "PIP_QUIET": "2",
            "BROWSER": "true",  # the studio opens a browser, which is this program here
        }

    def run(self, *command: str) -> None:
        finished = subprocess.run(command, cwd=self.work, env=self.variables, capture_output=True, text=True)
        if finished.returncode:
            output = finished.stdout[-2000:] + finished.stderr[-4000:]
            raise SystemExit(f"{shlex.join(command)[:200]} failed in {self.folder.name}:\n{output}")


def create_environment(folder: Path, base: Environment | None = None) -> Environment:
    """Create an empty environment; one with a base sees what is installed there, as if it were its own."""
    venv.create(folder, with_pip=True)
    environment = Environment(folder)
    environment.work.mkdir()
    if base is not None:
        inherited, own = (site_packages(one.folder) for one in (base, environment))
        (own / "base.pth").write_text(f"{inherited}\n")
    return environment


def site_packages(folder: Path) -> Path:
    (path,) = [folder / "Lib/site-packages"] if os.name == "nt" else folder.glob("lib/python*/site-packages")
    return path


def check_extra(extra: str, torch: Environment, wheel: Path) -> None:
    """Install the wheel with an extra, and use it."""
    environment = create_environment(torch.folder.parent / extra, torch)
    use = USES_OF_EXTRAS[extra]
    if use == "documents":
        for document in DOCUMENTS:
            follow(document, environment, wheel)
        return
    environment.run("pip", "install", f"{wheel}[{extra}]")
    if use == "studio":
        open_studio(environment, "picaset studio")
    else:
        environment.run("python", "-c", use)


def follow(document: Path, environment: Environment, wheel: Path) -> None:
    """Run the commands and examples of a document in order; those of a clone (make, git) are left to the tests.

    ``pip install picaset`` installs the wheel by its path, so that a version on an index is never taken.
    """
    for language, code in BLOCK.findall(document.read_text()):
        if language == "python":
            environment.run("python", "-c", code)
        for line in code.splitlines() if language in ("bash", "console") else ():
            command = line.partition("#")[0].strip()
            if command == "picaset studio":
                open_studio(environment, command)
            elif command.startswith(("picaset ", "pip ")):
                environment.run(*install_by_path(shlex.split(command), wheel))
            else:
                continue
            print(f"  {document.name}: {command}")


def install_by_path(command: Sequence[str], wheel: Path) -> list[str]:
    """Return a command in which ``pip install picaset[extra]`` names the wheel by its path, and others as they are."""
    if command[0] != "pip":
        return [*command]
    return [re.sub(r"^picaset(?=\[|$)", lambda _: str(wheel), word) for word in command]


def first_python_example(document: Path) -> str:
    return next(code for language, code in BLOCK.findall(document.read_text()) if language == "python")


def open_studio(environment: Environment, command: str) -> None:
    """Start the studio, read its page at the address that it prints, and end it with Ctrl-C."""
    program = subprocess.Popen(
        shlex.split(command), cwd=environment.work, env=environment.variables, stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        address = next((match[0] for line in program.stdout if (match := re.search(r"http://\S+", line))), None)
        if address is None:
            raise SystemExit(f"{command} ended without an address; run it by hand to see why.")
        with urllib.request.urlopen(address, timeout=60) as answer:
            page = answer.read().decode()
        if "picaset" not in page:
            raise SystemExit(f"{command}: {address} is not the page of the studio.")
    finally:
        program.send_signal(signal.SIGINT)
        program.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
