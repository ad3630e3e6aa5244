"""Small problems run on one thread, and the setting of the caller is restored."""

import pytest
import torch

from picaset.threads import few_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("size", "threads"), [(10, 1), (11, 2)])
def test_small_problems_use_one_thread_and_large_ones_all(two_threads, size, threads):
    with few_threads(size, small=10):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_an_error_restores_the_number_of_threads(two_threads):
    with pytest.raises(KeyError), few_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 2
