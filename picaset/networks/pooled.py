"""The shape that all networks on sets share: encode the elements, pool them, decode the answers."""

from collections.abc import Iterable
from typing import Any, Literal, Unpack

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.large.dispatch import num_passes, read_large
from picaset.large.large_set import LargeSet
from picaset.networks.pretrained import PretrainedNetwork
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.inputs import SetEncoder, SetPool, check_fits
from picaset.sets import SetBatch

Encoder = Literal["induced", "self", "elementwise"]


class PooledNetwork(PretrainedNetwork):
    """Encoders, a pool, and a decoder of its answers.

    Args:
        encoders: Applied to the set, one after the other.
        pool: From the encoded set to its answers.
        decoder: From the answers, (B, K, D), to the prediction.
        config: What the network was built from; see :class:`PretrainedNetwork`.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)
    """

    def __init__(
        self, encoders: Iterable[SetEncoder], pool: SetPool, decoder: nn.Module, config: dict[str, Any]
    ) -> None:
        super().__init__(config)
        self.dim_in = config["dim_in"]
        self.encoders = nn.ModuleList(encoders)
        self.pool = pool
        self.decoder = decoder

    def encode(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """The set as the pool sees it."""
        check_fits(self, elements, mask)
        for encoder in self.encoders:
            elements = encoder(elements, mask)
        return elements

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K O"]:
        """Predict for every set; ``mask`` is True where an element is present, None means all are."""
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            return pool_in_buckets(elements, self.forward)  # once for the whole network, not in every layer
        return self.decoder(self.pool(self.encode(elements, mask), mask))

    def read_large(self, large: LargeSet) -> Tensor:
        """The prediction for a set that is read in chunks; see :func:`picaset.stream`."""
        for encoder in self.encoders:
            large = read_large(encoder, large.keep(reads=num_passes(encoder)))
        return self.decoder(read_large(self.pool, large.keep(reads=num_passes(self.pool))))


def attention_encoders(
    kind: Encoder,
    dim_in: int,
    dim: int,
    *,
    num_blocks: int,
    num_heads: int,
    num_inducing: int,
    caller: str,
    **options: Unpack[BlockOptions],
) -> Iterable[SetEncoder]:
    """A stack of encoders of one kind, the first of which takes the elements as they come."""
    check_choice(kind, ("induced", "self", "elementwise"), caller=caller, name="encoder")
    check_positive(caller=caller, num_encoder_blocks=num_blocks)
    for index in range(num_blocks):
        width = dim if index else dim_in
        if kind == "induced":
            yield InducedSelfAttention(width, dim, num_heads=num_heads, num_inducing=num_inducing, **options)
        elif kind == "self":
            yield SelfAttention(width, dim, num_heads=num_heads, **options)
        else:
            yield Elementwise(nn.Sequential(nn.Linear(width, dim), nn.ReLU()), width)


def attention_decoder(
    dim: int, dim_out: int, *, num_blocks: int, num_heads: int, **options: Unpack[BlockOptions]
) -> nn.Sequential:
    """Answers that learn of each other, then one linear map to the prediction."""
    blocks = (SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_blocks))
    return nn.Sequential(*blocks, nn.Linear(dim, dim_out))
