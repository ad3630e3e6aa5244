"""An example of sets with labels: water samples with many particles; one particle of a kind makes a sample polluted."""

from pathlib import Path

import numpy as np

from picaset.tables.table import Table, row_locations


def example_samples(num_samples: int = 60, *, seed: int = 0) -> Table:
    """Return a table of particles with their sample and the state of the sample, clean or polluted."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(6, 16, size=num_samples)
    particles = [generator.normal(size=(size, 3)) for size in sizes]
    for sample in particles[1::2]:
        sample[generator.integers(len(sample))] += [4.0, -4.0, 0.0]
    features = np.round(np.concatenate(particles), 3)
    names = np.repeat([f"sample {index + 1}" for index in range(num_samples)], sizes).astype(object)
    states = np.repeat(["polluted" if index % 2 else "clean" for index in range(num_samples)], sizes).astype(object)
    columns = {name: features[:, index] for index, name in enumerate(("size", "density", "colour"))}
    path = Path("the example")
    return Table(path, {"sample": names, "state": states, **columns}, row_locations(0, len(features)))
