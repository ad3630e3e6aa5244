"""Objects of a scene that are found, invented and missed."""

import pytest
import torch

from picaset.lab.data.scenes import Objects, from_vectors, to_vectors
from picaset.lab.tasks.scene_scores import mark


@pytest.fixture
def there() -> Objects:
    """Four different objects, apart from each other, in ten slots."""
    present = torch.arange(10)[None] < 4
    coordinates = torch.zeros(1, 10, 3)
    coordinates[0, :4, 0] = torch.tensor([-2.5, -1.0, 1.0, 2.5])
    properties = torch.zeros(1, 10, 4, dtype=torch.long)
    properties[0, :4, 2] = torch.arange(4)
    return from_vectors(to_vectors(present, coordinates, properties))


def vectors_of(there: Objects) -> torch.Tensor:
    return to_vectors(there.presence > 0, there.coordinates, there.properties)


def test_what_is_there_is_found_wherever_it_stands_among_the_predictions(there):
    shuffled = vectors_of(there)[:, torch.randperm(10)]
    marks = mark(shuffled, there)
    assert marks.num_predicted(0) == int(marks.correct.sum()) == 4
    assert sorted(marks.matched[0, :4].tolist()) == [0, 1, 2, 3]
    assert marks.missed(0) == []
    torch.testing.assert_close(shuffled[0, marks.order[0], 0], marks.predicted.presence[0])


def test_what_is_unsure_far_away_of_another_kind_or_there_twice_is_not_right(there):
    vectors = vectors_of(there)
    vectors[0, 0, 0] = 0.4  # unsure
    vectors[0, 1, 1] += 1.1 / 6  # more than one unit away
    vectors[0, 2, 4:7] = torch.tensor([0.0, 1.0, 0.0])  # a sphere
    vectors[0, 9] = 0.9 * vectors[0, 3]  # a second time, less surely
    vectors[0, 9, 1:4] = vectors[0, 3, 1:4]
    marks = mark(vectors, there)
    assert marks.num_predicted(0) == 4
    assert marks.correct[0].tolist() == [place == 2 for place in range(10)]
    assert int(marks.order[0, 2]) == int(marks.matched[0, 2]) == 3
    assert marks.missed(0) == [0, 1, 2]


def test_predictions_that_are_equally_sure_stay_in_order(there):
    vectors = vectors_of(there)
    vectors[0, :, 0] = 0.9
    assert mark(vectors, there).order[0].tolist() == list(range(10))
