"""How the tests run.

Twice: once with the shapes of every signature checked at run time (``--jaxtyping-packages``), and once, for the tests
marked ``as_installed``, without: those trace the code, or read the errors that a user would get.
"""

import os
import shutil
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
PATIENCE = 60_000
"""Milliseconds that a browser may take; machines that test are busy."""
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


@pytest.fixture(scope="session")
def studio_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small networks for every room of the studio, most of them untrained."""
    from tests.studio import small_networks

    return small_networks(tmp_path_factory.mktemp("studio-weights"))


@pytest.fixture(scope="module")  # while it is open, no other test could run an event loop
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture
def page(browser, address):
    """A page that may ask this studio alone, and on which nothing may go wrong."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    wrong, foreign = list[str](), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda line: wrong.append(line.text) if is_wrong(line) else None)
    opened.on("request", lambda asked: None if asked.url.startswith((address, "blob:")) else foreign.append(asked.url))
    yield opened
    context.close()
    assert wrong == []
    assert foreign == []


def is_wrong(line) -> bool:
    """A refusal, and a request that a test itself stops, are not."""
    expected = ("the server responded with a status of 4", "net::ERR_FAILED")
    return line.type == "error" and not any(words in line.text for words in expected)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("jaxtyping_packages"):
        return
    out_of_place = [item for item in items if item.get_closest_marker("as_installed")]
    config.hook.pytest_deselected(items=out_of_place)
    items[:] = [item for item in items if item not in out_of_place]
