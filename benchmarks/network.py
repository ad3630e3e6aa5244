"""How much faster does a whole clustering network train than a careful form in plain torch?

AE32, AE32, PB3, SA and a linear map, 128 wide, on 10 sets of 450 points: one training step, with the optimizer. The
main baseline is the careful form, eager and compiled; the textbook form is second. Expected: a smaller ratio than for
pooling alone, because most of the time is spent in the encoders' maps of every element. Reported: medians of 20 steps,
measured in turns.

    OMP_NUM_THREADS=2 python -m benchmarks.network

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse

import torch

from benchmarks.careful import CarefulNetwork, compiled
from benchmarks.measure import machine_limits, medians_together, record, use_cpu_time
from benchmarks.textbook import TextbookNetwork
from picaset import Picaso

SIZES = dict(dim=128, num_heads=4, num_inducing=32, num_outputs=4, num_steps=3)


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
    parser.add_argument("--cpu-time", action="store_true", help="time of the processor, one thread: busy machines")
    if parser.parse_args().cpu_time:
        use_cpu_time()
    torch.manual_seed(0)
    limits = machine_limits()
    rows = list[dict[str, object]]()
    for dim_in in (2, 128):
        points = torch.randn(10, 450, dim_in)
        careful, ours = CarefulNetwork(dim_in, 5, **SIZES), Picaso(dim_in, 5, form="authors", **SIZES)
        forms = {
            "textbook": TextbookNetwork(dim_in, 5, **SIZES),
            "careful": careful,
            "careful, compiled": compiled(careful),
            "ours": ours,
            "ours, compiled": compiled(ours),
            "ours, bfloat16": Picaso(dim_in, 5, form="authors", **SIZES).bfloat16(),
        }
        steps = [
            training_step(network, points.bfloat16() if "bfloat16" in name else points)
            for name, network in forms.items()
        ]
        seconds = dict(zip(forms, medians_together(steps, at_most=30), strict=True))
        best = min(seconds["careful"], seconds["careful, compiled"])
        ratios = dict(eager=best / seconds["ours"], compiled=best / seconds["ours, compiled"])
        print(f"10 x 450 x {dim_in}: " + ", ".join(f"{name} {1e3 * value:.1f}ms" for name, value in seconds.items()))
        print(f"to the best other: {ratios['eager']:.2f}x eager, {ratios['compiled']:.2f}x compiled", flush=True)
        rows.append(dict(dim_in=dim_in, **seconds, **ratios))
    record("network", rows, limits)
