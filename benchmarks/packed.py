"""What do sets of very different sizes cost: packed, padded to the largest, and in torch-geometric?

One set of 10 000 elements and 99 of 1 to 100, one attention pool of K = 4 templates, H = 4 heads, D = 128. Expected:
the cost of packed sets depends on the number of elements, that of padded sets on a hundred times the largest set.
Reported: medians of 20 calls, or of as many as fit into eight seconds; peak memory of one step in a separate process;
and the time of reading and multiplying the elements at the best rates of this machine.

    python -m benchmarks.packed

Prints a table, then one JSON line; commit it under ``results/``. torch-geometric is measured where it is installed.
"""

import argparse

import torch

from benchmarks.measure import forward_and_backward, machine_limits, median_seconds, peak_bytes, record
from benchmarks.textbook import TextbookCascade, TextbookInduced
from picaset import InducedSelfAttention, Picaso, PicasoPool, SetBatch

DIM, HEADS, TEMPLATES, INDUCING = 128, 4, 4, 32


class OnPacked(torch.nn.Module):
    """A module that takes packed elements with fixed offsets."""

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
    """Draw one set of 10 000 elements and 99 of 1 to 100."""
    generator = torch.Generator().manual_seed(0)
    sizes = [10_000, *torch.randint(1, 101, (99,), generator=generator).tolist()]
    return SetBatch.from_list([torch.randn(size, DIM, generator=generator) for size in sizes])


def limit_seconds(total: int, limits: dict[str, float]) -> float:
    """Return the time to read the elements once or to multiply, whichever is longer, in a forward pass."""
    multiplying = total * 4 * TEMPLATES * HEADS * DIM / limits["flops"]
    return max(multiplying, 4 * total * DIM / limits["bytes_per_second"])


def training_call(name: str) -> object:
    """Return a forward and backward pass; the input is allocated, and code compiled, before the peak is measured."""
    module, inputs = candidates(skewed_batch())[name]
    if "compiled" in name:
        module(*inputs).sum().backward()
        module.zero_grad(set_to_none=True)
        inputs[0].grad = None
    return lambda: module(*inputs).sum().backward()


def candidates(batch: SetBatch) -> dict[str, tuple[torch.nn.Module, tuple[object, ...]]]:
    """Return modules and their inputs by name."""
    elements = batch.elements.clone().requires_grad_()
    padded, mask = batch.to_padded()
    padded = padded.clone().requires_grad_()
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=1, form="authors")
    modules: dict[str, tuple[torch.nn.Module, tuple[object, ...]]] = {
        "textbook, padded": (TextbookCascade(DIM, TEMPLATES, HEADS, 1), (padded, mask)),
        "ours, padded": (pool, (padded, mask)),
        "ours, packed": (OnPacked(pool, batch.offsets), (elements,)),
    }
    try:
        modules["torch-geometric"] = (Geometric(batch.owners, len(batch)), (elements,))
    except ImportError:
        print("torch-geometric is not installed and is left out")
    encoder = InducedSelfAttention(DIM, DIM, num_heads=HEADS, num_inducing=INDUCING, form="authors")
    network = Picaso(DIM, 5, dim=DIM, num_heads=HEADS, num_inducing=INDUCING, num_outputs=TEMPLATES, form="authors")
    torch.compiler.reset()
    return modules | {
        "textbook encoder, padded": (TextbookInduced(DIM, DIM, HEADS, INDUCING), (padded, mask)),
        "our encoder, packed": (OnPacked(encoder, batch.offsets), (elements,)),
        "our network, packed": (OnPacked(network, batch.offsets), (elements,)),
        "ours, packed, compiled": (OnPacked(whole(pool), batch.offsets), (elements,)),
        "our encoder, packed, compiled": (OnPacked(whole(encoder), batch.offsets), (elements,)),
        "our network, packed, compiled": (OnPacked(whole(network), batch.offsets), (elements,)),
    }


def whole(module: torch.nn.Module) -> torch.nn.Module:
    """Return a compiled form of a module that takes a SetBatch, without graph breaks."""
    return torch.compile(module, fullgraph=True)  # pyright: ignore[reportReturnType]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    batch = skewed_batch()
    limits = machine_limits()
    rows = list[dict[str, object]]()
    limit = limit_seconds(len(batch.elements), limits)
    print(f"{len(batch.elements)} elements in {len(batch)} sets; limit of a pool, forward: {1e3 * limit:.2f}ms")
    for name, (module, inputs) in candidates(batch).items():
        calls = forward_and_backward(module, *inputs)
        seconds = {kind: median_seconds(call, warmups=1, at_most=8.0) for kind, call in calls.items()}
        print(f"{name:26} " + "   ".join(f"{kind} {1e3 * value:8.2f}ms" for kind, value in seconds.items()), flush=True)
        rows.append(
            dict(name=name, steps=1, limit=None if "encoder" in name or "network" in name else limit, **seconds)
        )
    size = 4 * batch.elements.numel()
    print(f"\nPeak memory of a forward and backward pass, beside the input; the elements take {size / 2**20:.1f} MB")
    for name in candidates(batch):
        peak = peak_bytes(training_call, name)
        print(f"{name:26} {peak / 2**20:8.0f} MB, {peak / size:6.1f} times the elements")
        rows.append(dict(name=name, kind="memory", peak_bytes=peak, times_elements=peak / size))
    record("packed", rows, limits)
