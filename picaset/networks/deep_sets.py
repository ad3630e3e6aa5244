"""DeepSets: every element by itself, one fixed pool, one decoder (Zaheer et al. 2017)."""

from typing import Literal

from torch import nn

from picaset.checks import check_choice, check_positive
from picaset.networks.pooled import PooledNetwork
from picaset.operators.encoders import Elementwise
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool

POOLS = {"mean": MeanPool, "sum": SumPool, "max": MaxPool}


class DeepSets(PooledNetwork):
    r"""DeepSets: a sum decomposition, :math:`\rho(\operatorname{pool}_n \phi(x_n))` (Zaheer et al. 2017).

    Both networks have four layers, as in Set Transformer's comparison.

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Features inside.
        pool: ``"mean"``, ``"sum"`` or ``"max"``.
        num_outputs: Vectors predicted per set.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)

    Example:
        >>> import torch
        >>> DeepSets(2, 5, num_outputs=4)(torch.randn(8, 100, 2)).shape
        torch.Size([8, 4, 5])
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 128,
        pool: Literal["mean", "sum", "max"] = "mean",
        num_outputs: int = 1,
    ) -> None:
        check_positive(caller="DeepSets", dim_in=dim_in, dim_out=dim_out, dim=dim, num_outputs=num_outputs)
        check_choice(pool, tuple(POOLS), caller="DeepSets", name="pool")
        super().__init__(
            encoders=[Elementwise(four_layers(dim_in, dim, dim), dim_in)],
            pool=POOLS[pool](),
            decoder=nn.Sequential(
                nn.Flatten(), four_layers(dim, dim, num_outputs * dim_out), nn.Unflatten(1, (num_outputs, dim_out))
            ),
            config=dict(dim_in=dim_in, dim_out=dim_out, dim=dim, pool=pool, num_outputs=num_outputs),
        )


def four_layers(dim_in: int, dim: int, dim_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim_in, dim),
        nn.ReLU(),
        nn.Linear(dim, dim),
        nn.ReLU(),
        nn.Linear(dim, dim),
        nn.ReLU(),
        nn.Linear(dim, dim_out),
    )
