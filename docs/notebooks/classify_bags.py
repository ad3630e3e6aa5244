# %% [markdown]
# # Bags with one label
#
# Water samples, each with six to fifteen particles. One particle of a certain kind makes a sample *polluted*; the
# labels are those of the samples, not of the particles. We compare two lines of scikit-learn with `SetClassifier`, and
# ask which particles decided.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from picaset import SetClassifier, SetStatistics

plt.rcParams.update({"figure.dpi": 130, "figure.constrained_layout.use": True})
random = np.random.default_rng(0)
samples = [random.normal(size=(random.integers(6, 16), 3)) for _ in range(100)]
polluted = np.arange(100) % 2
culprits = [int(random.integers(len(sample))) for sample in samples]
for sample, culprit in list(zip(samples, culprits, strict=True))[1::2]:
    sample[culprit] += [3.0, -3.0, 0.0]

figure, axes = plt.subplots(2, 2, figsize=(7, 5.5), sharex=True, sharey=True)
for axis, index in zip(axes.flat, range(4), strict=True):
    axis.scatter(*samples[index].T[:2], s=15)
    axis.set(title="polluted" if polluted[index] else "clean", xlabel="size")
figure.supylabel("density")
# %% [markdown]
# ## Baselines first
#
# We learn from the first half of the samples and predict the other half. A bag is described by its mean, or by moments,
# quantiles and extremes (`SetStatistics`), for a linear model.

# %%
known, new = samples[:50], samples[50:]
truth = polluted[50:]
average = [sample.mean(axis=0) for sample in samples]
statistics = make_pipeline(SetStatistics(), StandardScaler(), LogisticRegression()).fit(known, polluted[:50])
classifier = SetClassifier(random_state=0, max_iter=10).fit(known, polluted[:50])
probability = {
    "mean + logistic regression": LogisticRegression().fit(average[:50], polluted[:50]).predict_proba(average[50:]),
    "statistics + logistic regression": statistics.predict_proba(new),
    "SetClassifier": classifier.predict_proba(new),
}
for name, values in probability.items():
    print(f"{name}: {(values.argmax(axis=1) == truth).mean():.0%} of the other samples")

# %%
figure, axes = plt.subplots(3, 1, figsize=(7, 6), sharex=True)
for axis, (name, values) in zip(axes, probability.items(), strict=True):
    groups = [values[truth == 0, 1], values[truth == 1, 1]]
    axis.hist(groups, bins=np.linspace(0, 1, 11), label=["clean", "polluted"])
    axis.set(title=name, ylabel="samples")
axes[0].legend()
axes[2].set_xlabel("probability of polluted")
# %% [markdown]
# ## What the ensemble did
#
# `SetClassifier` fits several methods and weights them by how well they predict samples that they have not seen.

# %%
for member, line in classifier.report_.items():
    print(f"{member:10}weight {line['weight']:.2f}, loss {line['loss']:.3f}")

# %% [markdown]
# ## Which particle decided
#
# Importances of a sample sum to one. Large dots matter; the culprit, which the labels do not contain, has a ring.

# %%
importances = classifier.element_importance(new)
figure, axes = plt.subplots(2, 2, figsize=(7, 5.5), sharex=True, sharey=True)
for axis, index in zip(axes.flat, range(1, 9, 2), strict=True):
    axis.scatter(*new[index].T[:2], s=8 + 300 * importances[index], alpha=0.7)
    axis.scatter(*new[index][culprits[50 + index]][:2], s=260, facecolors="none", edgecolors="tab:red")
    axis.set(xlabel="size")
figure.supylabel("density")
share = np.mean([importances[index].argmax() == culprits[50 + index] for index in range(1, 50, 2)])
print(f"the most important particle is the culprit in {share:.0%} of the polluted samples")
