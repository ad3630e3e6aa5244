"""Configuration and fixtures of all tests.

Tests run the package as it is installed. The laws of the operators run once more with run-time checks of all shapes
(``--jaxtyping-packages``), and ``make shapes`` runs everything with them but the tests marked ``as_installed``, which
trace the code, check the errors that a user gets, or would take too long.

The environment variable PICASET_HYPOTHESIS selects the Hypothesis profile: ``fast`` (default) runs a few fixed examples
of every law, ``laws`` many random ones, ``shapes`` three, in which the shapes of the signatures are checked.
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
settings.register_profile("laws", max_examples=500, deadline=None, print_blob=True)
settings.register_profile("shapes", settings.get_profile("fast"), max_examples=3)
settings.register_profile("interpreter", settings.get_profile("fast"), max_examples=1)
INTERPRETED = "TRITON_INTERPRET" in os.environ
settings.load_profile(os.environ.get("PICASET_HYPOTHESIS", "interpreter" if INTERPRETED else "fast"))
# Generated data is cached between test runs, apart from the cache of a user.
os.environ["PICASET_CACHE"] = str(Path(tempfile.gettempdir()) / "picaset-tests")
PATIENCE = 60_000
"""Timeout of the browser in milliseconds; test machines are busy."""
# Some virtual machines report AMX without providing it, and torch's products in bfloat16 end in an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.set_num_threads(1)  # more threads slow down operations on small tensors
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also in the commands that the tests start
if INTERPRETED:  # every test of this process attends to sets by the GPU's kernel, interpreted
    from picaset.operators import attention, triton_attention

    attention.DEVICE_KERNELS["cpu"] = triton_attention.KERNEL


@pytest.fixture(params=[None, 0], ids=["default buckets", "small buckets"])
def bucket_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a test with the default buckets, which hold all small sets, and with a bucket for almost every size."""
    from picaset.operators import buckets

    if request.param is not None:
        monkeypatch.setattr(buckets, "NEGLIGIBLE_PADDING", request.param)
    return buckets.NEGLIGIBLE_PADDING


@pytest.fixture(autouse=True)
def a_folder_for_trained_networks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Store networks trained by a test in a folder of its own."""
    monkeypatch.setenv("PICASET_WEIGHTS", str(tmp_path_factory.getbasetemp() / f"weights-{uuid4().hex}"))


@pytest.fixture(scope="session")
def studio_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of small networks, mostly untrained, for every room of the studio."""
    from tests.studio import small_networks

    return small_networks(tmp_path_factory.mktemp("studio-weights"))


@pytest.fixture(scope="module")  # no other test can run an event loop while it is open
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, address):
    """Page of the studio; the test fails on any script error and on any request to another server."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    errors, foreign = list[str](), list[str]()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if is_error(message) else None)
    opened.on(
        "request", lambda request: None if request.url.startswith((address, "blob:")) else foreign.append(request.url)
    )
    yield opened
    context.close()
    assert errors == []
    assert foreign == []


def is_error(message) -> bool:
    """Whether a console message is an error; refused requests and requests that a test aborts are not."""
    expected = ("the server responded with a status of 4", "net::ERR_FAILED")
    return message.type == "error" and not any(words in message.text for words in expected)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    excluded = ["as_installed"] if config.getoption("jaxtyping_packages") else []
    excluded += [] if INTERPRETED else ["triton"]
    deselected = {item for item in items if any(item.get_closest_marker(name) for name in excluded)}
    config.hook.pytest_deselected(items=list(deselected))
    items[:] = [item for item in items if item not in deselected]
