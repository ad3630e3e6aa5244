"""Estimators compute on their device: inputs are moved there once, results come back, and nothing is mixed."""

import numpy as np
import pytest
import torch

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.set_estimators import SetClassifier, SetRegressor
from tests.fake_device import FakeDevice

pytestmark = pytest.mark.as_installed


def draw_points(count: int = 60) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=(count, 2)) + 8 * generator.integers(2, size=(count, 1))


def test_the_fake_device_refuses_to_mix_tensors_and_returns_values():
    with FakeDevice():
        there = torch.arange(3.0).to("fake")
        assert (there + there).cpu().tolist() == [0, 2, 4]
        with pytest.raises(RuntimeError, match="expected all tensors to be on one device"):
            there + torch.ones(3)
    assert not torch.accelerator.is_available()  # other tests of this process see no device
    with torch.random.fork_rng():
        torch.rand(1)


@pytest.mark.parametrize("options", [{}, {"noise": True}, {"init": "network", "n_components": 2}], ids=str)
def test_a_mixture_is_searched_on_its_device_with_the_same_result(options):
    points = draw_points()
    expected = AmortizedMixture(random_state=0, **options).fit(points)
    with FakeDevice() as device:
        mixture = AmortizedMixture(random_state=0, device="fake", **options).fit(points)
    assert device.moved > 0
    np.testing.assert_allclose(mixture.means_, expected.means_)
    np.testing.assert_array_equal(mixture.predict(points), expected.predict(points))


def draw_sets() -> tuple[list[np.ndarray], np.ndarray]:
    generator = np.random.default_rng(0)
    labels = np.arange(24) % 2
    return [generator.normal(size=(generator.integers(3, 9), 3)) + label for label in labels], labels


@pytest.fixture
def no_backward_pass(monkeypatch):
    """Leave gradients at zero, because torch has no backward pass for such a device: networks keep their weights."""

    def set_zero_gradients(loss, *arguments, **options):
        nodes, seen = [loss.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            nodes += [function for function, _ in node.next_functions]
            if hasattr(node, "variable"):
                node.variable.grad = torch.zeros_like(node.variable)

    monkeypatch.setattr(torch.Tensor, "backward", set_zero_gradients)


@pytest.mark.usefixtures("no_backward_pass")
@pytest.mark.parametrize("kind", [SetClassifier, SetRegressor])
def test_a_network_of_sets_learns_and_predicts_on_its_device_with_the_same_result(kind):
    sets, labels = draw_sets()
    options = {"method": "network", "max_iter": 2, "random_state": 0}
    expected = kind(**options).fit(sets, labels)
    with FakeDevice() as device:
        estimator = kind(device="fake", **options).fit(sets, labels)
        moved_in_fit = device.moved
        predicted = estimator.predict(sets)
    assert 0 < moved_in_fit < device.moved
    np.testing.assert_allclose(predicted, expected.predict(sets), atol=1e-5)


@pytest.mark.usefixtures("no_backward_pass")
def test_an_anomaly_detector_learns_and_scores_on_its_device_with_the_same_result():
    sets, _ = draw_sets()
    options = {"method": "network", "max_iter": 3, "dim": 8, "random_state": 0}
    expected = SetAnomalyDetector(**options).fit(sets)
    with FakeDevice() as device:
        detector = SetAnomalyDetector(device="fake", **options).fit(sets)
        moved_in_fit = device.moved
        scores = detector.score_elements(sets)
    assert 0 < moved_in_fit < device.moved
    for score, other in zip(scores, expected.score_elements(sets), strict=True):
        np.testing.assert_allclose(score, other, atol=1e-5)
