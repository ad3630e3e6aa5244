"""Set pools as aggregations of PyTorch Geometric (PyG).

Dimensions:  V elements   G groups   F, E features in and out   K vectors of the pool
"""

import math
from typing import Any, cast

import torch
from torch import Tensor

from picaset.extras import MissingExtraError
from picaset.operators.base import SetPool
from picaset.sets import SetBatch

try:
    from torch_geometric.nn.aggr import Aggregation  # pyright: ignore
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "torch_geometric":
        raise
    raise MissingExtraError(
        "picaset.integrations.pyg needs torch_geometric; install it with: pip install torch-geometric"
    ) from None


class SetAggregation(cast(type[Any], Aggregation)):
    """A PyG aggregation that applies a set pool to every group.

    It goes wherever PyG takes an ``aggr``: a readout of graphs, or the messages of a layer. Groups are not padded to
    the largest one, the index needs no order, and an empty group has the pool's answer to an empty set.

    Args:
        pool: Any pool of picaset, with K vectors per set; these are concatenated.

    Shapes:
        x         (..., V, F)        with the V elements along ``dim``
        index     (V,)               group of each element
        ptr       (G + 1,)           instead of ``index``: group g is ``x[ptr[g]:ptr[g + 1]]``
        returns   (..., G, K * E)    with the G groups along ``dim``

    Example:
        >>> from picaset import PicasoPool
        >>> aggregation = SetAggregation(PicasoPool(8, num_templates=2, num_heads=2))
        >>> aggregation(torch.randn(5, 8), torch.tensor([0, 2, 2, 0, 2])).shape
        torch.Size([3, 16])
    """

    def __init__(self, pool: SetPool) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.pool = pool

    def reset_parameters(self) -> None:
        """Initialize the pool again."""
        self.pool.load_state_dict(type(self.pool)(**self.pool.config).state_dict())

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Pool every group; ``max_num_elements``, which limits the padding of other aggregations, is not needed."""
        x = x.movedim(dim, -2)
        several = x.shape[:-2]
        x = x.reshape(math.prod(several), *x.shape[-2:])  # (S, V, F)
        sizes = None if ptr is None else ptr.diff()
        if index is None:
            assert sizes is not None  # PyG's __call__ gives one of them
            index = torch.arange(len(sizes), device=x.device).repeat_interleave(sizes, output_size=x.shape[1])
        num_groups = dim_size if sizes is None else len(sizes)
        assert num_groups is not None  # PyG's __call__ counts the groups
        index = (torch.arange(len(x), device=x.device)[:, None] * num_groups + index).flatten()
        pooled = self.pool(SetBatch.from_batch_index(x.flatten(0, 1), index, len(x) * num_groups)).flatten(1)
        return pooled.reshape(*several, num_groups, pooled.shape[1]).movedim(-2, dim)
