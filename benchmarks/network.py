"""How much faster does a whole clustering network train than its textbook form?

AE32, AE32, PB, SA and a linear map, 128 wide, on 10 sets of 450 points: one training step, with the optimizer.
Expected: a smaller ratio than for pooling alone, because most of the time is spent in the encoders' projections of
every element. Reported: medians of 20 steps, measured in turns.

    python -m benchmarks.network

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse

import torch

from benchmarks.measure import machine_limits, medians_together, record
from benchmarks.textbook import TextbookNetwork
from picaset import Picaso

SIZES = dict(dim=128, num_heads=4, num_inducing=32, num_outputs=4, num_steps=2)


def training_step(network: torch.nn.Module, points: torch.Tensor) -> object:
    """Return a function that makes one step of Adam on the same points."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        network(points).square().mean().backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    torch.manual_seed(0)
    limits = machine_limits()
    rows = list[dict[str, object]]()
    for dim_in in (2, 128):
        points = torch.randn(10, 450, dim_in)
        networks = TextbookNetwork(dim_in, 5, **SIZES), Picaso(dim_in, 5, form="authors", **SIZES)
        textbook, ours = medians_together([training_step(network, points) for network in networks])
        print(
            f"10 x 450 x {dim_in:3}: textbook {1e3 * textbook:6.1f}ms, ours {1e3 * ours:6.1f}ms, {textbook / ours:.2f}x"
        )
        rows.append(dict(dim_in=dim_in, textbook=textbook, ours=ours, ratio=textbook / ours))
    record("network", rows, limits)
