# %% [markdown]
# # A pool in a model
#
# A set is positive if at least one of its points lies in a small region, unknown to the network. We train the same
# network with a mean, a maximum and an attention pool, on sets of different sizes, and look at the attention.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from picaset import MaxPool, MeanPool, PicasoPool, SetBatch

plt.rcParams.update({"figure.dpi": 130, "figure.constrained_layout.use": True})
REGION, RADIUS = torch.tensor([0.5, 0.4]), 0.2


def draw_sets(count, generator, smallest=5, largest=40):
    """Half of the sets have a point in the region; all other points lie anywhere else."""
    sets, labels = [], torch.arange(count) % 2
    for label in labels:
        size = int(torch.randint(smallest, largest, (), generator=generator))
        points = 2 * torch.rand(4 * size + 20, 2, generator=generator) - 1
        points = points[(points - REGION).norm(dim=1) > RADIUS][:size]
        if label:
            angle, distance = 2 * np.pi * torch.rand((), generator=generator), torch.rand((), generator=generator)
            points[0] = REGION + RADIUS * distance.sqrt() * torch.stack([angle.cos(), angle.sin()])
        sets.append(points[torch.randperm(len(points), generator=generator)])
    return SetBatch.from_list(sets), labels


examples, labels = draw_sets(6, torch.Generator().manual_seed(0))
figure, axes = plt.subplots(2, 3, figsize=(7, 4.8), sharex=True, sharey=True)
for axis, points, label in zip(axes.flat, examples.to_list(), labels, strict=True):
    axis.scatter(*points.T, s=8)
    axis.add_patch(plt.Circle(REGION.tolist(), RADIUS, fill=False, color="tab:red"))
    axis.set_title("positive" if label else "negative")
    axis.set_aspect("equal")

# %% [markdown]
# ## Three models that differ in the pool
#
# `SetBatch.map` applies a module to every element. The pool then returns a fixed number of vectors, whatever the sizes.


# %%
class Model(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.pool, self.head = pool, nn.Linear(32, 2)

    def forward(self, sets):
        return self.head(self.pool(sets.map(self.encoder))[:, 0])


torch.manual_seed(0)
models = {
    "mean": Model(MeanPool()),
    "maximum": Model(MaxPool()),
    "PICASO": Model(PicasoPool(dim=32, num_templates=1, num_heads=2)),
}
held_out, held_out_labels = draw_sets(400, torch.Generator().manual_seed(1))
generator = torch.Generator().manual_seed(2)
batches = [draw_sets(32, generator) for _ in range(201)]
accuracy = {name: [] for name in models}
for name, model in models.items():
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (sets, targets) in enumerate(batches):
        if step % 20 == 0:
            with torch.no_grad():
                accuracy[name].append(float((model(held_out).argmax(1) == held_out_labels).float().mean()))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(sets), targets).backward()
        optimizer.step()
    print(f"{name}: {accuracy[name][-1]:.0%} of other sets")

figure, axis = plt.subplots(figsize=(6, 3))
for name, values in accuracy.items():
    axis.plot(range(0, 201, 20), values, label=name)
axis.set(xlabel="step", ylabel="accuracy on other sets")
axis.legend()
# %% [markdown]
# The mean dilutes one point among many; the maximum and attention pick it out. Where one element decides, a maximum is
# enough; [choosing](../choosing.md) says where attention is ahead.
#
# ## Attention
#
# `trace` returns the attention of every step. Large dots have a high weight in the last step, averaged over heads.

# %%
model = models["PICASO"]
positives = held_out.to_list()[1:8:2]
figure, axes = plt.subplots(2, 2, figsize=(7, 6.6), sharex=True, sharey=True)
for axis, points in zip(axes.flat, positives, strict=True):
    with torch.no_grad():
        attention = model.pool.trace(model.encoder(points)[None]).attention
    weights = attention[-1, 0].mean(dim=(0, 1))
    axis.scatter(*points.T, s=6 + 300 * weights, alpha=0.7)
    axis.add_patch(plt.Circle(REGION.tolist(), RADIUS, fill=False, color="tab:red"))
    axis.set_aspect("equal")

# %% [markdown]
# ## Sets that are larger than those of training
#
# The same model reads sets of any size. The question gets harder, because more points lie near the region.

# %%
for largest in (40, 100, 200):
    sets, targets = draw_sets(200, torch.Generator().manual_seed(3), smallest=largest - 20, largest=largest)
    with torch.no_grad():
        right = {name: float((model(sets).argmax(1) == targets).float().mean()) for name, model in models.items()}
    print(
        f"sets of {largest - 20} to {largest} points:",
        ", ".join(f"{name} {share:.0%}" for name, share in right.items()),
    )
