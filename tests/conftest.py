"""How the tests run.

Twice: once with the shapes of every signature checked at run time (``--jaxtyping-packages``), and once, for the tests
marked ``as_installed``, without: those trace the code, or read the errors that a user would get.
"""

import os
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from hypothesis import Phase, settings

PHASES = [Phase.explicit, Phase.generate, Phase.shrink]
settings.register_profile("fast", max_examples=10, deadline=None, derandomize=True, phases=PHASES)
settings.load_profile("fast")
# Generated data is kept between tests, and between their runs, but not where a user's is.
os.environ["PICASET_CACHE"] = str(Path(tempfile.gettempdir()) / "picaset-tests")
torch.set_num_threads(1)  # small tensors: more threads only wait for each other


@pytest.fixture(scope="session", autouse=True)
def several_buckets():
    """Packed sets of a few elements would all be padded together; here every difference in size counts."""
    from picaset.operators import buckets

    buckets.NEGLIGIBLE = 0


@pytest.fixture(autouse=True)
def a_folder_for_trained_networks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test trains, no other finds, and no user."""
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path_factory.getbasetemp() / f"weights-{uuid4().hex}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("jaxtyping_packages"):
        return
    out_of_place = [item for item in items if item.get_closest_marker("as_installed")]
    config.hook.pytest_deselected(items=out_of_place)
    items[:] = [item for item in items if item not in out_of_place]
