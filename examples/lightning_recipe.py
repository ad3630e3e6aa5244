"""Train a set network with Lightning: sets of different sizes, without padding.

    python examples/lightning_recipe.py

Lightning moves a SetBatch to the device as it moves tensors. Sets are collated by ``picaset.collate``.
"""

import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from picaset import Picaso, SetBatch, SimilarSizeBatches, collate


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = Picaso(2, 2, dim=16, num_heads=2, num_inducing=4)

    def logits(self, sets: SetBatch) -> torch.Tensor:
        return self.network(sets)[:, 0]

    def training_step(self, batch: tuple[SetBatch, torch.Tensor]) -> torch.Tensor:
        sets, labels = batch
        return cross_entropy(self.logits(sets), labels)

    def validation_step(self, batch: tuple[SetBatch, torch.Tensor]) -> None:
        sets, labels = batch
        self.log("accuracy", (self.logits(sets).argmax(dim=1) == labels).float().mean(), batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def draw(count: int, seed: int) -> list[tuple[torch.Tensor, int]]:
    """Draw sets of 5 to 30 points, half of them around another centre."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(5, 31, (count,), generator=generator).tolist()
    return [(torch.randn(size, 2, generator=generator) + index % 2, index % 2) for index, size in enumerate(sizes)]


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    train, validation = draw(256, seed=0), draw(200, seed=1)
    batches = SimilarSizeBatches([len(points) for points, _ in train], batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    model = Classifier()
    trainer.fit(
        model,
        DataLoader(train, batch_sampler=batches, collate_fn=collate),
        DataLoader(validation, batch_size=100, collate_fn=collate),
    )
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")
