# %% [markdown]
# # A set larger than memory
#
# `stream` applies a pool or a network to one set in chunks. We check that the result is that of the set in memory,
# pool a set that never exists as a whole, train on one, and cluster a file.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from picaset import AmortizedMixture, Picaso, PicasoPool, stream

plt.rcParams.update({"figure.dpi": 130, "figure.constrained_layout.use": True})
torch.manual_seed(0)
pool = PicasoPool(dim=16, num_templates=4, num_heads=4)

# %% [markdown]
# ## The same result, whatever the chunks
#
# A step of attention is a softmax-weighted mean: a sum, a sum of weights, and a maximum, which chunks contribute to.
# The difference to the set in memory is rounding.

# %%
elements = torch.randn(20_000, 16)
with torch.no_grad():
    whole = pool(elements[None])
    sizes = [1, 10, 100, 1000, 10_000]
    rounding = [
        float((stream(pool, elements[:2000], chunk=size) - pool(elements[None, :2000])).abs().max()) for size in sizes
    ]
    averaged = [
        float((pool(elements[:2000].view(-1, size, 16)).mean(0) - pool(elements[None, :2000])).abs().max())
        for size in sizes[:4]
    ]

figure, axis = plt.subplots(figsize=(6, 3))
axis.loglog(sizes, rounding, "o-", label="stream")
axis.loglog(sizes[:4], averaged, "o-", label="mean over chunks of pooled chunks, which is wrong")
axis.set(xlabel="elements in a chunk", ylabel="largest difference")
axis.legend(loc="best")

# %% [markdown]
# ## A set that never exists
#
# A source may be a function that returns chunks: files, a database, a simulation. It is called once for each step of
# attention and has to return the same elements every time.


# %%
def simulate(count, size=50_000):
    for first in range(0, count, size):
        generator = torch.Generator().manual_seed(first)
        yield torch.randn(min(size, count - first), 16, generator=generator)


numbers, seconds = [100_000, 200_000, 400_000, 800_000], []
for count in [numbers[0], *numbers]:  # the first pass is not timed: it prepares the threads
    begin = time.perf_counter()
    with torch.no_grad():
        pooled = stream(pool, lambda count=count: simulate(count))
    seconds.append(time.perf_counter() - begin)
seconds = seconds[1:]
print(f"{numbers[-1]:,} elements, at most 50,000 of them at a time: {pooled.shape}")

figure, axis = plt.subplots(figsize=(6, 3))
axis.plot(numbers, seconds, "o-", label="stream, with the simulation")
axis.plot(numbers, np.array(numbers) * seconds[-1] / numbers[-1], "--", color="grey", label="proportional")
axis.set(xlabel="elements", ylabel="seconds", ylim=(0, None))
axis.xaxis.set_major_formatter("{x:,.0f}")
axis.legend(loc="best")
# %% [markdown]
# ## Training on one large file
#
# Gradients are those of the whole set: the backward pass reads the file again. One set has one target, here the mean of
# the larger half of the first feature; the loss falls as it would in memory.

# %%
np.save("points.npy", elements.numpy())
network = Picaso(dim_in=16, dim_out=1, dim=16, num_heads=2, num_inducing=4)
optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
target = elements[:, 0].sort(descending=True).values[:10_000].mean()
losses = []
for _ in range(15):
    loss = (stream(network, "points.npy", chunk=5000)[0, 0, 0] - target).square()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

figure, axis = plt.subplots(figsize=(6, 2.6))
axis.semilogy(losses)
axis.set(xlabel="step", ylabel="squared error")
# %% [markdown]
# ## Clusters of a file
#
# `fit_stream` searches the mixture on a sample; every step from there reads the whole file.

# %%
random = np.random.default_rng(0)
centres = random.uniform(-8, 8, size=(5, 2))
np.save("places.npy", centres[random.integers(5, size=200_000)] + random.normal(size=(200_000, 2)))
mixture = AmortizedMixture(random_state=0).fit_stream("places.npy")
places = np.load("places.npy", mmap_mode="r")

figure, axis = plt.subplots(figsize=(5, 4.2))
axis.hexbin(*places[::10].T, gridsize=60, cmap="Greys", mincnt=1)
axis.scatter(*mixture.means_.T, marker="+", s=150, color="tab:red", label=f"{mixture.n_components_} components")
axis.set_aspect("equal")
axis.legend(loc="upper right")
