"""The recipes for other training libraries run and learn."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.as_installed

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["lightning_recipe", "skorch_recipe"])
def test_a_recipe_trains_a_network_on_sets_of_different_sizes(name: str, tmp_path):
    finished = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout.split("accuracy ")[1].split()[0]) > 0.9
