# %% [markdown]
# # Clusters in tables
#
# A table of nests on six islands: each island has its own place, its own size and its own number of colonies. We
# cluster all islands at once, look at the result, and ask how sure the number of clusters is.
#
# ## One command

# %%
# !picaset cluster --example --set island --labels nests.csv

# %% [markdown]
# The file has our rows and two more columns. From here on we do the same in Python.

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from picaset import AmortizedMixture

plt.rcParams.update({"figure.dpi": 130, "figure.constrained_layout.use": True})
nests = np.genfromtxt("nests.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
islands = {name: nests[nests["island"] == name] for name in np.unique(nests["island"])}
sets = [np.stack([rows["east"], rows["north"]], axis=1) for rows in islands.values()]
print(nests.dtype.names, [len(points) for points in sets])

# %%
mixtures = AmortizedMixture(random_state=0).fit_many(sets)


def draw_mixture(axis, mixture, points):
    """Points in the colour of their component, and two standard deviations of each component."""
    labels = mixture.predict(points)
    axis.scatter(*points[labels < 0].T, s=6, color="lightgrey")
    for index, (mean, covariance) in enumerate(zip(mixture.means_, mixture.covariance_matrices(), strict=True)):
        axis.scatter(*points[labels == index].T, s=6, color=f"C{index}")
        variances, directions = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 4 * np.sqrt(variances[::-1])
        axis.add_patch(Ellipse(mean, width, height, angle=angle, fill=False, color=f"C{index}"))


figure, axes = plt.subplots(3, 2, figsize=(7, 8.5))
for axis, name, mixture, points in zip(axes.flat, islands, mixtures, sets, strict=True):
    draw_mixture(axis, mixture, points)
    axis.set_title(f"{name}: {mixture.n_components_} colonies, {mixture.covariance_type_}")

# %% [markdown]
# ## How sure is the number?
#
# `n_components_probabilities_` gives the probability of each number of components that follows from the information
# criterion.

# %%
figure, axes = plt.subplots(2, 3, figsize=(7, 4), sharey=True)
for axis, name, mixture in zip(axes.flat, islands, mixtures, strict=True):
    probabilities = mixture.n_components_probabilities_
    axis.bar(list(probabilities), list(probabilities.values()))
    axis.set(title=name, xlabel="components", xticks=list(probabilities), ylim=(0, 1))

# %% [markdown]
# ## Points that belong nowhere
#
# We scatter sixty strays over one island. Without `noise=True` they get components of their own; with it they get the
# label -1 and leave the others alone.

# %%
random = np.random.default_rng(0)
points = sets[0]
strays = random.uniform(points.min(axis=0), points.max(axis=0), size=(60, 2))
dirty = np.concatenate([points, strays])
figure, axes = plt.subplots(1, 2, figsize=(7, 3.4))
for axis, noise in zip(axes, (False, True), strict=True):
    mixture = AmortizedMixture(noise=noise, random_state=0).fit(dirty)
    draw_mixture(axis, mixture, dirty)
    axis.set_title(f"noise={noise}: {mixture.n_components_} components")
