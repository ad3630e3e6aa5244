"""``picaset tour``"""

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text

from picaset.files import create_folder
from picaset.lab.reports.template_walk import draw_template_walk, walk_through_mixture
from picaset.operators.picaso import PicasoPool
from picaset.sets import SetBatch
from picaset.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class Tour:
    """Demonstrate a set operator in a few seconds.

    Pools sets of different sizes, checks that the order of the elements and the padding do not change the result, and
    draws how templates move step by step to the clusters of a set.

    Examples:
        picaset tour
        picaset tour --out figures --seed 3
    """

    out: Path = Path("tour")
    """Folder to write the figure to."""
    seed: int = 45
    """Random seed of the sets."""

    @torch.no_grad()
    def run(self) -> int:
        create_folder(self.out)
        console = Terminal()
        generator = torch.Generator().manual_seed(self.seed)
        sets = [torch.randn(size, 16, generator=generator) for size in (700, 41, 5, 1, 0)]
        torch.manual_seed(self.seed)  # pyright: ignore[reportUnknownMemberType]
        pool = PicasoPool(16, num_templates=4, num_heads=2).eval()
        print_pooling(pool, sets, console)
        agrees = print_invariances(pool, sets, generator, console)
        for path in draw_template_walk(walk_through_mixture(seed=self.seed), self.out):
            console.print(Text.assemble(("Figure", "bold"), f"  {path}"))
        return 0 if agrees else 1


def print_pooling(pool: PicasoPool, sets: list[torch.Tensor], console: Terminal) -> None:
    """Pool sets of different sizes in one call, and print the shapes."""
    batch = SetBatch.from_list(sets)
    pooled = pool(batch)
    console.print(Text.assemble(("PicasoPool(16, num_templates=4, num_heads=2)", "bold"), " on one batch of sets"))
    table = Table()
    table.add_column("set of", justify="right")
    table.add_column("pooled to")
    table.add_column("first template, first values")
    for size, templates in zip(batch.sizes, pooled, strict=True):
        values = "  ".join(f"{float(value):+.3f}" for value in templates[0, :4])
        table.add_row(f"{int(size)} element{'s' * (int(size) != 1)}", " x ".join(map(str, templates.shape)), values)
    console.print(table)


def print_invariances(
    pool: PicasoPool, sets: list[torch.Tensor], generator: torch.Generator, console: Terminal
) -> bool:
    """Print how much the result changes under each invariance; return whether all are within rounding."""
    elements, mask = SetBatch.from_list(sets).to_padded()
    expected = pool(elements, mask)
    order = torch.randperm(elements.shape[1], generator=generator)
    poisoned = elements.masked_fill(~mask[..., None], torch.nan)
    changes = {
        "elements in another order": pool(elements[:, order], mask[:, order]),
        "padding filled with NaN": pool(poisoned, mask),
        "packed without padding": pool(SetBatch.from_list(sets)),
        "one set at a time": torch.cat([pool(elements[None]) for elements in sets]),
    }
    console.print(Text.assemble(("Invariances", "bold"), ": changes of the input that must not change the result"))
    table = Table()
    table.add_column("change")
    table.add_column("largest difference", justify="right")
    table.add_column("verdict")
    agreements = [torch.allclose(result, expected, atol=1e-5) for result in changes.values()]
    for (change, result), agrees in zip(changes.items(), agreements, strict=True):
        table.add_row(change, f"{float((result - expected).abs().max()):.1e}", "same" if agrees else "DIFFERENT")
    console.print(table)
    return all(agreements)
