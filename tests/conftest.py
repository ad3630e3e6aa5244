"""What the tests share: shape checks that can be switched off, and sets drawn by Hypothesis."""

import jaxtyping
import pytest
import torch
from hypothesis import Phase, settings

PHASES = [Phase.explicit, Phase.generate, Phase.shrink]
settings.register_profile("fast", max_examples=10, deadline=None, derandomize=True, phases=PHASES)
settings.load_profile("fast")
torch.set_num_threads(1)  # small tensors: more threads only wait for each other


@pytest.fixture
def unchecked_shapes():
    """Call the library as a user does, without the run-time shape checks of the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
