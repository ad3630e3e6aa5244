# %% [markdown]
# # Rows that do not belong
#
# Books on shelves. The books of a shelf lie along one line in the space of their features, the topic of the shelf; one
# book of each shelf lies along another line. By itself every book is ordinary, so a detector of outlying rows has
# nothing to find. The picture shows two of the three features.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from picaset import SetAnomalyDetector

plt.rcParams.update({"figure.dpi": 130, "figure.constrained_layout.use": True})
random = np.random.default_rng(0)


def draw_shelf(size):
    """Books along one line, and the index of the one that is along another."""
    topics = random.normal(size=(2, 3))
    topics /= np.linalg.norm(topics, axis=1, keepdims=True)
    places = random.normal(size=(size, 1))
    books = (places + 0.5 * np.sign(places)) * topics[0]
    odd = int(random.integers(size))
    books[odd] = np.linalg.norm(books[odd]) * topics[1]
    return books + 0.05 * random.normal(size=books.shape), odd


shelves, truth = zip(*(draw_shelf(int(size)) for size in random.integers(6, 13, size=100)), strict=True)
figure, axes = plt.subplots(2, 3, figsize=(7, 5), sharex=True, sharey=True)
for axis, books, odd in zip(axes.flat, shelves, truth, strict=False):
    axis.scatter(books[:, 0], books[:, 1], s=15)
    axis.scatter(*books[odd, :2], s=120, facecolors="none", edgecolors="tab:red")
    axis.set_aspect("equal")

# %% [markdown]
# ## Baselines
#
# Three ways that need no training on sets: an isolation forest on all rows, the distance to the mean of the shelf, and
# the local outlier factor within the shelf. We count the shelves whose most suspicious book is the misplaced one.

# %%
rows = np.concatenate(shelves)
ends = np.cumsum([len(books) for books in shelves])[:-1]
suspicion = {
    "isolation forest, all rows": np.split(-IsolationForest(random_state=0).fit(rows).score_samples(rows), ends),
    "distance to the mean": [np.linalg.norm(books - books.mean(axis=0), axis=1) for books in shelves],
    "local outlier factor": [-LocalOutlierFactor(3).fit(books).negative_outlier_factor_ for books in shelves],
}
shares = {
    name: np.mean([scores.argmax() == odd for scores, odd in zip(values, truth, strict=True)])
    for name, values in suspicion.items()
}

# %% [markdown]
# ## The detector
#
# `SetAnomalyDetector` moves books between shelves on purpose, and uses the detector that finds them best. It needs no
# labels.

# %%
detector = SetAnomalyDetector(random_state=0).fit(shelves)
for name, precision in detector.report_.items():
    print(f"{name:12}average precision {precision:.2f}{', in use' * (name in detector.members_)}")
shares["SetAnomalyDetector"] = np.mean(detector.find_odd(shelves) == np.array(truth))

figure, axis = plt.subplots(figsize=(7, 2.4))
bars = axis.barh(list(shares), list(shares.values()), color=["tab:grey"] * 3 + ["tab:blue"])
axis.bar_label(bars, fmt="{:.0%}", padding=3)
axis.set(xlim=(0, 1.1), xlabel="shelves whose misplaced book was found")
axis.invert_yaxis()

# %% [markdown]
# ## Which rows to look at
#
# `predict` says which rows are odd at all. The threshold is estimated from the books that were moved on purpose.

# %%
scores = np.concatenate(detector.decision_function(shelves))
odd = np.concatenate([np.arange(len(books)) == index for books, index in zip(shelves, truth, strict=True)])
called = np.concatenate(detector.predict(shelves))
print(f"{called.sum()} rows are called odd, {(called & odd).sum()} of the {odd.sum()} misplaced books among them")

figure, axis = plt.subplots(figsize=(7, 2.8))
bins = np.linspace(*np.quantile(scores, [0, 0.995]), 50)
axis.hist([scores[~odd], scores[odd]], bins=bins, histtype="stepfilled", alpha=0.7, label=["here", "elsewhere"])
axis.axvline(detector.threshold_, color="black", linewidth=1, label="threshold")
axis.set(xlabel="score", ylabel="books")
axis.legend(title="belongs", loc="upper right")
