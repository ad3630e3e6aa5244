"""How much faster is PicasoPool than a careful form in plain torch, and how near to the machine's limit?

Three baselines in one run. The main one is the careful form, eager and compiled (``benchmarks/careful.py``): keys and
values projected once, torch's own attention. The textbook form projects the set in every step. The limit of a row is
the time to read the input once per step or to do the necessary multiplications, whichever is longer, at the rates of
this machine in reading and in large matrix products. Reported: medians of 20 calls or more, measured in turns (three
calls for the textbook form), three steps, float32, the authors' form, elements that require gradients; and the peak of
memory beside the elements and their gradient.

    OMP_NUM_THREADS=2 python -m benchmarks.pooling
    python -m benchmarks.pooling --device cuda    # the same table on a GPU
    python -m benchmarks.pooling --dtype bfloat16 # ours in bfloat16 against ours in float32
    python -m benchmarks.pooling --native         # large sets with torch's kernel and with that in C
    python -m benchmarks.pooling --orders         # both evaluation orders on a grid of sizes
    python -m benchmarks.pooling --growth         # time against N, K and steps, and the figure

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse
import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.careful import CarefulCascade, compiled
from benchmarks.measure import (
    forward_and_backward,
    machine_limits,
    median_seconds,
    medians_together,
    peak_bytes,
    record,
    use_cpu_time,
)
from benchmarks.textbook import TextbookCascade
from picaset import PicasoPool
from picaset.operators import attention, native_attention
from picaset.operators.attention import cheapest_order
from picaset.operators.fused import projects_sets

STEPS = 3
SIZES = [  # B, N, D, H, K
    (10, 450, 128, 4, 4),
    (128, 64, 128, 4, 1),
    (8, 8, 256, 8, 1),
    (1, 100_000, 128, 4, 4),
    (1, 1_000_000, 64, 4, 4),
    (16, 4096, 128, 4, 16),
]
GOALS = [(1.2, 1.3), (4, 4), (1.2, 1.2), (5, 4), (5, 8), (1.5, 1.6)]
"""Ratios to the faster careful form, forward and with backward, that the design asks for."""


def build_ours(dim: int, num_templates: int, num_heads: int, num_steps: int, **options: object) -> PicasoPool:
    return PicasoPool(
        dim, num_templates=num_templates, num_heads=num_heads, num_steps=num_steps, form="authors", **options
    )


def limit_seconds(sizes: tuple[int, ...], limits: dict[str, float]) -> float:
    """Return the time to read the input once per step or to multiply in the cheapest order, whichever is longer."""
    sets, count, dim, heads, templates = sizes
    project = 4 * dim * dim + 4 * STEPS * templates * dim
    absorb = 4 * STEPS * templates * heads * dim
    multiplying = sets * count * min(project, absorb) / limits["flops"]
    return max(multiplying, STEPS * 4 * sets * count * dim / limits["bytes_per_second"])


def training_call(form: str, sizes: tuple[int, ...]) -> object:
    """Return a forward and backward pass; elements are allocated, and code compiled, before the peak is measured."""
    sets, count, dim, heads, templates = sizes
    name, _, is_compiled = form.partition(", ")
    module = {"textbook": TextbookCascade, "careful": CarefulCascade, "ours": build_ours}[name](
        dim, templates, heads, STEPS
    )
    elements = torch.randn(sets, count, dim, requires_grad=True)
    if is_compiled:
        module = compiled(module)
        small = torch.randn(sets, count, dim, requires_grad=True)
        module(small).sum().backward()
    return lambda: module(elements).sum().backward()


def compare(limits: dict[str, float], device: str, indices: Sequence[int]) -> list[dict[str, object]]:
    """Measure careful, textbook and our form on all sizes."""
    rows = list[dict[str, object]]()
    print(
        f"{'B, N, D, H, K':26} {'pass':17} textbook   careful  compiled      ours  compiled  to the best other (goal)"
    )
    for sizes, goals in ((SIZES[index], GOALS[index]) for index in indices):
        sets, count, dim, heads, templates = sizes
        elements = torch.randn(sets, count, dim, device=device, requires_grad=True)
        careful, ours, textbook = (
            build(dim, templates, heads, STEPS).to(device) for build in (CarefulCascade, build_ours, TextbookCascade)
        )
        forms = {
            "careful": careful,
            "careful, compiled": compiled(careful),
            "ours": ours,
            "ours, compiled": compiled(ours),
        }
        calls = {name: forward_and_backward(module, elements) for name, module in forms.items()}
        for kind, goal in zip(("forward", "forward+backward"), goals, strict=True):
            seconds = dict(
                zip(forms, medians_together([call[kind] for call in calls.values()], at_most=10), strict=True)
            )
            seconds["textbook"] = median_seconds(
                forward_and_backward(textbook, elements)[kind], repeats=3, warmups=1, at_most=3
            )
            best = min(seconds[name] for name in ("textbook", "careful", "careful, compiled"))
            eager, traced = best / seconds["ours"], best / seconds["ours, compiled"]
            order = ("textbook", "careful", "careful, compiled", "ours", "ours, compiled")
            print(
                f"{sizes!s:26} {kind:17}" + " ".join(f"{1e3 * seconds[name]:8.2f} " for name in order)
                + f"  {eager:.2f}x eager, {traced:.2f}x compiled ({goal}x)", flush=True,
            )  # fmt: skip
            limit = limit_seconds(sizes, limits) if kind == "forward" else None
            rows.append(dict(sizes=sizes, kind=kind, goal=goal, eager=eager, compiled=traced, limit=limit, **seconds))
    return rows


def compare_memory() -> list[dict[str, object]]:
    """Measure the peak of memory at one million elements."""
    rows = list[dict[str, object]]()
    sizes = SIZES[4]
    size = 4 * sizes[0] * sizes[1] * sizes[2]
    for form in ("textbook", "careful", "careful, compiled", "ours", "ours, compiled"):
        peak = peak_bytes(training_call, form, sizes) - size  # without the gradient of the elements
        print(f"{sizes!s:26} peak memory beside elements and gradient, {form}: {peak / size:.2f} times the input")
        rows.append(dict(sizes=sizes, kind="memory", form=form, peak_bytes=peak, times_input=peak / size))
    return rows


def compare_dtypes() -> list[dict[str, object]]:
    """Measure bfloat16 against float32: large sets, and a training step of a network."""
    rows = list[dict[str, object]]()
    for sizes in SIZES[3:]:
        sets, count, dim, heads, templates = sizes
        wide, elements = build_ours(dim, templates, heads, STEPS), torch.randn(sets, count, dim)
        half = copy.deepcopy(wide).bfloat16()
        error = float((half(elements.bfloat16()).float() - wide(elements)).abs().max() / wide(elements).abs().max())
        calls = [
            forward_and_backward(module, elements.to(dtype).requires_grad_())
            for module, dtype in ((wide, torch.float32), (half, torch.bfloat16))
        ]
        for kind in ("forward", "forward+backward"):
            full, short = medians_together([call[kind] for call in calls], at_most=10)
            print(f"{sizes!s:26} {kind:17} float32 {1e3 * full:8.2f}ms  bfloat16 {1e3 * short:8.2f}ms  "
                  f"{full / short:.2f}x, error {error:.1e} of the largest value", flush=True)  # fmt: skip
            rows.append(dict(sizes=sizes, kind=kind, float32=full, bfloat16=short, ratio=full / short, error=error))
    return rows


def compare_kernels() -> list[dict[str, object]]:
    """Measure torch's kernel against that in C on large sets; ``default`` says whether the latter serves them."""
    native_attention.enable()
    native = attention.DEVICE_KERNELS["cpu"]
    without = native._replace(serves=lambda elements: False)

    def using(kernel: attention.DeviceKernel, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            attention.DEVICE_KERNELS["cpu"] = kernel
            call()

        return run

    rows = list[dict[str, object]]()
    for sizes in SIZES[3:]:
        sets, count, dim, heads, templates = sizes
        elements = torch.randn(sets, count, dim, requires_grad=True)
        default = attention.pays_natively(sets, heads * templates, elements.numel())
        for kind, call in forward_and_backward(build_ours(dim, templates, heads, STEPS), elements).items():
            plain, own = medians_together([using(without, call), using(native, call)], at_most=10)
            print(f"{sizes!s:26} {kind:17} torch {1e3 * plain:8.2f}ms  C {1e3 * own:8.2f}ms  {plain / own:.2f}x",
                  flush=True)  # fmt: skip
            rows.append(dict(sizes=sizes, kind=kind, torch=plain, native=own, ratio=plain / own, default=default))
    return rows


def compare_orders() -> list[dict[str, object]]:
    """Measure both evaluation orders on a grid of sizes, and how much slower than the fastest the chosen one is.

    "one node" is the choice of keys and values in one autograd node, for sets of few elements.
    """
    rows = list[dict[str, object]]()
    print(f"{'B, N, D, H':22} {'L':>2} {'K':>3}  {'project':>9} {'absorb':>9}  chosen     over the best")
    grid = [(16, 2048, 128, 4), (4, 4096, 64, 8), (64, 128, 128, 4), (16, 1024, 256, 8)]
    small = [(1, 4, 64, 4), (32, 4, 64, 4), (8, 8, 128, 4), (8, 8, 256, 8), (32, 16, 128, 4), (128, 64, 128, 4)]
    for sets, count, dim, heads in grid + small:
        elements = torch.randn(sets, count, dim, requires_grad=True)
        for steps in (1, 3):
            for templates in (1, 4, 8, 16, 32, 64):
                node = build_ours(dim, templates, heads, steps)  # chooses again, between its own two orders
                chosen = cheapest_order(
                    num_queries=templates, num_heads=heads, dim_elements=dim, dim=dim, num_steps=steps
                )
                projected = projects_sets(node.templates[None], elements, heads, steps)
                calls = [
                    forward_and_backward(build_ours(dim, templates, heads, steps, order=order), elements)[
                        "forward+backward"
                    ]
                    for order in ("project", "absorb", None)
                ]
                names = ("project", "absorb", "seconds")
                seconds = dict(zip(names, medians_together(calls, turns=3, at_least=0.3, at_most=2.0), strict=True))
                chosen = "one node" if chosen == "absorb" and projected else chosen
                over = seconds["seconds"] / min(seconds.values()) - 1
                print(
                    f"{(sets, count, dim, heads)!s:22} {steps:2} {templates:3}  {1e3 * seconds['project']:7.1f}ms "
                    f"{1e3 * seconds['absorb']:7.1f}ms  {chosen:8} {over:8.0%}"
                )
                rows.append(
                    dict(sizes=(sets, count, dim, heads), steps=steps, templates=templates, chosen=chosen, over=over,
                         **seconds)
                )  # fmt: skip
    return rows


def measure_growth() -> list[dict[str, object]]:
    """Measure a forward and backward pass while one size grows and the others are fixed."""
    base = {"N": 16384, "K": 4, "steps": 3}
    grid = {"N": [4096, 8192, 16384, 32768, 65536, 131072], "K": [1, 2, 4, 8, 16], "steps": [1, 2, 3, 4, 6, 8]}
    rows = list[dict[str, object]]()
    for name, values in grid.items():
        for value in values:
            sizes = base | {name: value}
            elements = torch.randn(1, sizes["N"], 128, requires_grad=True)
            for form, build in (("textbook", TextbookCascade), ("ours", build_ours)):
                call = forward_and_backward(build(128, sizes["K"], 4, sizes["steps"]), elements)["forward+backward"]
                seconds = median_seconds(call, repeats=7, warmups=1)
                rows.append(dict(kind="growth", grows=name, value=value, form=form, seconds=seconds))
                print(f"{name:6} {value:7}  {form:9} {1e3 * seconds:8.1f}ms")
    return rows


def draw_growth(rows: list[dict[str, object]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    labels = {"N": "elements N", "K": "templates K", "steps": "steps L"}
    for axis, (name, label) in zip(figure.subplots(1, 3, sharey=True), labels.items(), strict=True):
        for form, colour in (("textbook", "#d55e00"), ("ours", "#0072b2")):
            points = [
                (row["value"], 1e3 * row["seconds"]) for row in rows if (row["grows"], row["form"]) == (name, form)
            ]
            x, y = zip(*points, strict=True)
            axis.plot(x, y, marker="o", color=colour, label=form)
        axis.set(xlabel=label, xscale="log", yscale="log")
        axis.set_xticks(x, [f"{value // 1024}k" if value >= 1024 else str(value) for value in x])
        axis.minorticks_off()
        axis.grid(color="#eeeeee")
    figure.axes[0].set_ylabel("forward and backward, ms")
    figure.axes[0].set_yticks([10, 100, 1000], ["10", "100", "1000"])
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", action="store_true", help="both evaluation orders on a grid of sizes")
    figure = Path("docs/figures/pooling_growth.png")
    parser.add_argument("--native", action="store_true", help="large sets with torch's kernel and with that in C")
    parser.add_argument("--growth", type=Path, nargs="?", const=figure, help="time against sizes; path of the figure")
    parser.add_argument("--device", default="cpu", help="device of the table, such as cuda")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="compare bfloat16 with float32"
    )
    parser.add_argument(
        "--rows", type=int, nargs="*", default=range(len(SIZES)), help="rows of the table, from 0; none if empty"
    )
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak of memory")
    parser.add_argument("--cpu-time", action="store_true", help="time of the processor, one thread: busy machines")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.cpu_time:
        use_cpu_time()
    limits = machine_limits()
    if arguments.orders:
        record("pooling", compare_orders(), limits)
    elif arguments.native:
        record("pooling", compare_kernels(), limits)
    elif arguments.growth:
        rows = measure_growth()
        draw_growth(rows, arguments.growth)
        record("pooling", rows, limits)
    elif arguments.dtype == "bfloat16":
        record("pooling", compare_dtypes(), limits)
    else:
        rows = compare(limits, arguments.device, arguments.rows)
        memory = [] if arguments.no_memory or arguments.device != "cpu" else compare_memory()
        record("pooling", [*rows, *memory], limits)
