"""What is done to elements on their way from the source to the operator."""

from collections.abc import Callable

from torch import Tensor, nn

from picaset.large.large_set import LargeSet

Transform = Callable[[Tensor], Tensor]


def expect_width(large: LargeSet, operator: nn.Module, transform: Transform | None) -> LargeSet:
    """A large set behind a transform, refused where its elements do not fit the operator."""
    name, width = type(operator).__name__, width_of(operator)

    def prepare(elements: Tensor) -> Tensor:
        prepared = elements if transform is None else transform(elements)
        if prepared.shape[:-1] != elements.shape[:-1]:
            raise ValueError(
                "picaset.stream: transform must keep every element where it is, (B, n, D) to (B, n, E); it made "
                f"{tuple(prepared.shape)} of {tuple(elements.shape)}."
            )
        if width is not None and prepared.shape[-1] != width:
            raise ValueError(
                f"{name}: elements must have {width} features; those of {large.source.name} have {prepared.shape[-1]}"
                f"{'' if transform is None else ' after the transform'}."
            )
        return prepared

    modules = (transform,) if isinstance(transform, nn.Module) else ()
    return large.map(prepare, modules=modules, costs=transform is not None)


def width_of(operator: nn.Module) -> int | None:
    """Features that an operator expects; of modules one after the other, what the first one does."""
    if isinstance(operator, nn.Sequential) and len(operator):
        return width_of(operator[0])
    return getattr(operator, "dim_in", None)
