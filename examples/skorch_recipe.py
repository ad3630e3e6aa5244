"""Train a set network with skorch, with the scikit-learn API.

    python examples/skorch_recipe.py

A list of arrays would be taken for several inputs, so the sets go into a Dataset; ``picaset.collate`` packs a batch.
"""

import torch
from skorch import NeuralNetClassifier
from skorch.dataset import ValidSplit
from torch import nn
from torch.utils.data import Dataset

from picaset import Picaso, SetBatch, collate


class Bags(Dataset[tuple[torch.Tensor, int]]):
    """Sets of points with labels; half of them lie around another centre."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.randint(5, 31, (count,), generator=generator).tolist()
        self.labels = [index % 2 for index in range(count)]
        self.sets = [
            torch.randn(size, 2, generator=generator) + label for size, label in zip(sizes, self.labels, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.sets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.sets[index], self.labels[index]


class SetNet(NeuralNetClassifier):
    """A skorch network whose module takes a SetBatch."""

    def infer(self, x: SetBatch, **fit_params: object) -> torch.Tensor:
        return self.module_(x.to(self.device), **fit_params)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = SetNet(
        nn.Sequential(Picaso(2, 2, dim=16, num_heads=2, num_inducing=4), nn.Flatten()),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=5e-3,
        max_epochs=4,
        batch_size=16,
        iterator_train__collate_fn=collate,
        iterator_train__shuffle=True,
        iterator_valid__collate_fn=collate,
        train_split=ValidSplit(5),
        classes=[0, 1],
        verbose=0,
    )
    net.fit(Bags(256, seed=0), None)
    test = Bags(200, seed=1)
    predicted = net.predict(test)
    print(f"accuracy {(predicted == test.labels).mean():.3f}")
