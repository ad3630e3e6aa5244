"""What do sets of very different sizes cost: packed, padded to the largest, and in torch-geometric?

One set of 10 000 elements and 99 of 1 to 100, one attention pool of K = 4 templates, H = 4 heads, D = 128. Expected:
packed costs what its elements cost, padded a hundred times the small sets. Reported: medians of 20 calls, or of
what fits into eight seconds; peak memory of one step, in a process of its own; and the time that reading and
multiplying the elements would take at this machine's best rates.

    python -m benchmarks.packed

Prints a table, then one JSON line; commit it under ``results/``. torch-geometric is measured where it is installed.
"""

import argparse

import torch

from benchmarks.measure import forward_and_backward, machine_limits, median_seconds, peak_bytes, record
from benchmarks.textbook import TextbookCascade, TextbookInduced
from picaset import InducedSelfAttention, PicasoPool, SetBatch

DIM, HEADS, TEMPLATES, INDUCING = 128, 4, 4, 32


class OfPacked(torch.nn.Module):
    """A module called with packed elements; offsets are known."""

    def __init__(self, module: torch.nn.Module, offsets: torch.Tensor) -> None:
        super().__init__()
        self.module = module
        self.offsets = offsets

    def forward(self, elements: torch.Tensor) -> torch.Tensor:
        output = self.module(SetBatch(elements, self.offsets))
        return output.elements if isinstance(output, SetBatch) else output


class Geometric(torch.nn.Module):
    """torch-geometric's attention pool on packed elements."""

    def __init__(self, owners: torch.Tensor, num_sets: int) -> None:
        super().__init__()
        from torch_geometric.nn.aggr import SetTransformerAggregation

        self.pool = SetTransformerAggregation(DIM, TEMPLATES, num_encoder_blocks=0, heads=HEADS)
        self.owners = owners
        self.num_sets = num_sets

    def forward(self, elements: torch.Tensor) -> torch.Tensor:
        return self.pool(elements, self.owners, dim_size=self.num_sets)


def skewed_batch() -> SetBatch:
    generator = torch.Generator().manual_seed(0)
    sizes = [10_000, *torch.randint(1, 101, (99,), generator=generator).tolist()]
    return SetBatch.from_list([torch.randn(size, DIM, generator=generator) for size in sizes])


def limit_seconds(total: int, steps: int, limits: dict[str, float]) -> float:
    """Of a forward pass: reading the elements once per step, or multiplying, whichever takes longer."""
    multiplying = total * 4 * steps * TEMPLATES * HEADS * DIM / limits["flops"]
    return max(multiplying, steps * 4 * total * DIM / limits["bytes_per_second"])


def training_call(name: str) -> object:
    """A forward and backward pass of one candidate, with its input in memory already, for measuring peaks."""
    module, inputs = candidates(skewed_batch(), 1)[name]
    return lambda: module(*inputs).sum().backward()


def candidates(batch: SetBatch, steps: int) -> dict[str, tuple[torch.nn.Module, tuple[object, ...]]]:
    elements = batch.elements.clone().requires_grad_()
    padded, mask = batch.to_padded()
    padded = padded.clone().requires_grad_()
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=steps, form="authors")
    found: dict[str, tuple[torch.nn.Module, tuple[object, ...]]] = {
        "textbook, padded": (TextbookCascade(DIM, TEMPLATES, HEADS, steps), (padded, mask)),
        "ours, padded": (pool, (padded, mask)),
        "ours, packed": (OfPacked(pool, batch.offsets), (elements,)),
    }
    if steps == 1:
        try:
            found["torch-geometric"] = (Geometric(batch.owners, len(batch)), (elements,))
        except ImportError:
            print("torch-geometric is not installed: left out")
        found |= {
            "textbook encoder, padded": (TextbookInduced(DIM, DIM, HEADS, INDUCING), (padded, mask)),
            "our encoder, packed": (
                OfPacked(
                    InducedSelfAttention(DIM, DIM, num_heads=HEADS, num_inducing=INDUCING, form="authors"),
                    batch.offsets,
                ),
                (elements,),
            ),
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    batch = skewed_batch()
    limits = machine_limits()
    rows = list[dict[str, object]]()
    for steps in (1, 3):
        limit = limit_seconds(len(batch.elements), steps, limits)
        print(f"\n{steps} step{'s' * (steps > 1)}, {len(batch.elements)} elements in {len(batch)} sets")
        print(f"limit of a pool, forward: {1e3 * limit:.2f}ms")
        for name, (module, inputs) in candidates(batch, steps).items():
            calls = forward_and_backward(module, *inputs)
            seconds = {kind: median_seconds(call, warmups=1, at_most=8.0) for kind, call in calls.items()}
            print(f"{name:26} " + "   ".join(f"{kind} {1e3 * value:8.2f}ms" for kind, value in seconds.items()))
            rows.append(dict(name=name, steps=steps, limit=None if "encoder" in name else limit, **seconds))
    size = 4 * batch.elements.numel()
    print(f"\nPeak memory of a forward and backward pass, beside the input; the elements take {size / 2**20:.1f} MB")
    for name in candidates(batch, 1):
        peak = peak_bytes(training_call, name)
        print(f"{name:26} {peak / 2**20:8.0f} MB, {peak / size:6.1f} times the elements")
        rows.append(dict(name=name, kind="memory", peak_bytes=peak, times_elements=peak / size))
    record("packed", rows, limits)
