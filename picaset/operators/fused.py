r"""Attention blocks as one autograd node, and in the absorbed order as one operator in compiled code.

A block that K queries apply L times to the same sets, as ``PicasoPool`` does, is dozens of small operations and as many
autograd nodes. Here it is one node with a backward pass of its own:

    attend_in_steps    T_{i+1} = MAB(T_i, X), i = 0 .. L - 1, for padded or packed sets
    plain_steps        the same in operations that torch can trace, transform and differentiate any number of times
    PaddedSets         the part of both passes that touches the elements
    PackedSets         the same for a SetBatch, in buckets
    AbsorbedAttention  the attention of one step, and its backward pass, with the maps absorbed
    ProjectedAttention the same with keys and values of all elements, for sets of few elements

The gradients of a parameter in all steps are one product, because their rows are concatenated, and those of the
elements accumulate in one buffer. Everything but the attention itself is a product of R = B K rows.

``torch.compile`` calls both passes as operators of ``torch.library`` (``picaset::steps``), so that compiled code runs
the same kernels in the same memory; for small sets it traces both passes and fuses their operations. Exported programs,
function transforms and second derivatives use ``plain_steps``.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K   R = B K rows
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.functional import layer_norm, linear

from picaset.operators import attention as kernels
from picaset.operators.attention import (
    Order,
    absorb,
    differentiable_gradients,
    fold,
    library,
    plain_attention,
    project,
    requires_plain_equation,
    torch_library,
    unfold,
    weight_by_head,
)
from picaset.operators.buckets import split_into_buckets
from picaset.operators.state import Presence, backward_without_autocast, upcast_half, without_autocast
from picaset.sets import SetBatch
from picaset.threads import few_threads

EPSILON = 1e-5
"""Constant in the layer norms of a block."""


class Form(NamedTuple):
    """A block without its tensors, and the number of steps."""

    num_heads: int
    num_steps: int
    scale: float
    paper: bool
    residual: bool
    feed_forward: bool
    norm: bool

    def layers(self) -> list[str]:
        """Return the names of the layers, in the order of their weights and biases in a list of parameters."""
        names = ["query_map", "key_map", "value_map"]
        if self.paper:
            names += ["output_map", *["residual_map"] * self.residual, *["attended_layer"] * self.feed_forward]
        names += ["last_layer"] * self.feed_forward + ["attended_norm"] * self.norm
        return names + ["last_norm"] * (self.norm and self.feed_forward)


Layers = dict[str, tuple[Tensor, Tensor]]
"""Weight and bias of each layer."""


def attend_in_steps(
    queries: Tensor,
    elements: Tensor | SetBatch,
    mask: Presence | None,
    parameters: Sequence[Tensor],
    form: Form,
    order: Order | None = None,
) -> Tensor:
    """Return the queries (B, K, D) after all steps; ``queries`` (#B, K, Q) shared by all sets may be a batch of one.

    ``order=None`` projects sets that are so small that this is cheaper (``projects_sets``).

    Rows are computed in float32 at least. Products with bfloat16 elements are computed in bfloat16 where the processor
    does that fast, and summed in float32.
    """
    dtype, kind = queries.dtype, queries.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):  # the dtype of the last layer, as autocast chooses it
        dtype = torch.float32 if form.norm else torch.get_autocast_dtype(kind)
    with without_autocast(queries):
        queries, parameters = upcast_half(queries), [upcast_half(parameter) for parameter in parameters]
        if isinstance(elements, SetBatch):
            values, mask, offsets = elements.elements, elements.weights, elements.offsets
        else:
            values, offsets = elements, None
        if not kernels.keeps_dtype(values):
            values = upcast_half(values)
        if order is None:
            projected = offsets is None and projects_sets(queries, values, form.num_heads, form.num_steps)
            order = "project" if projected else "absorb"
        needs_gradient = torch.is_grad_enabled() and any(part.requires_grad for part in (queries, values, *parameters))
        compiling = torch.compiler.is_compiling()
        num_queries = form.num_heads * queries.shape[1]
        # The compiler fuses the single operations of small sets.
        small = compiling and offsets is None and kernels.stores_weights(num_queries, values, queries.dtype)
        if small and not needs_gradient and order == "absorb":
            return plain_steps(queries, values, mask, parameters, form).to(dtype)
        if compiling and not small:
            saved = torch.ops.picaset.steps(queries, values, mask, offsets, parameters, *form)
            output = saved[-1]
        elif needs_gradient:
            output = cast(Any, AttendInSteps).apply(form, order, queries, values, mask, offsets, *parameters)
        else:
            with threads_for(queries, values, offsets, form):
                output = forward_steps(queries, sets_of(values, mask, offsets, num_queries, order), parameters, form)[
                    -1
                ]
    count = queries.shape[1]
    return output.view(output.shape[0] // count, count, output.shape[1]).to(dtype)


SMALL_STEP = 2**22
"""Number of multiplications in a step up to which one thread is as fast as two, and does not wait for another."""


def threads_for(
    queries: Tensor, elements: Tensor, offsets: Tensor | None, form: Form
) -> AbstractContextManager[object]:
    """Return a context in which small problems use one thread; compiled code, as it traces a pass, chooses itself."""
    if torch.compiler.is_compiling():
        return nullcontext()
    sets = elements.shape[0] if offsets is None else len(offsets) - 1
    maps, scores = sets * 2 * queries.shape[2] * (queries.shape[2] + elements.shape[-1]), 2 * elements.numel()
    return few_threads(queries.shape[1] * (maps + form.num_heads * scores), small=SMALL_STEP)


PROJECTED_PER_QUERY = 2
"""Number of elements per query and step up to which keys and values are computed; ``benchmarks.pooling --orders``."""
PROJECTED_PER_COMPILED_QUERY = 0.5
"""The same in compiled code, which fuses what makes the absorbed order slow for small sets."""


def projects_sets(queries: Tensor, elements: Tensor, num_heads: int, num_steps: int) -> bool:
    """Whether padded sets have so few elements that computing keys and values is cheaper than absorbing their maps.

    Both cost two maps: of every element once, or of every query in every step, by head. Compiled code with a dynamic
    number of elements always absorbs the maps.
    """
    if elements.device.type != "cpu":
        return False
    sets, count, _ = elements.shape
    num_queries = queries.shape[1]
    ratio = PROJECTED_PER_COMPILED_QUERY if torch.compiler.is_compiling() else PROJECTED_PER_QUERY
    if not statically_known_true(count <= ratio * num_steps * num_queries) or sets == 0:
        return False
    if not kernels.stores_weights(num_heads * num_queries, elements, queries.dtype):
        return False
    names = (kernels.FLASH_FORWARD, kernels.FLASH_BACKWARD)
    return all(kernels.private_operator(name) is not None for name in names)


def plain_steps(
    queries: Tensor, elements: Tensor, mask: Presence | None, parameters: Sequence[Tensor], form: Form
) -> Tensor:
    """Return the queries after all steps, by operations that torch can trace, transform and differentiate."""
    p = layers_of(parameters, form)
    elements = upcast_half(elements)
    key_weight, value_weight = maps_by_head(p, form)
    bias = p["value_map"][1] + 0 * p["key_map"][1]  # the key bias cancels, and has a gradient of zero
    bias = bias if mask is None else bias * mask.any(dim=1)[:, None, None]
    for _ in range(form.num_steps):
        projected = linear(queries, *p["query_map"])
        folded = absorb(projected, key_weight, form.scale).expand(elements.shape[0], -1, -1)[:, None]
        mean = plain_attention(folded, elements[:, None], elements[:, None], mask)[:, 0]
        queries = combine(queries, projected, project(mean, value_weight) + bias, p, form)
    return queries


def combine(queries: Tensor, projected: Tensor, attended: Tensor, p: Layers, form: Form) -> Tensor:
    """Apply Eq. 3 after the attention: output map, residuals, norms and feed-forward layers."""
    if form.paper:
        attended = linear(attended, *p["output_map"])
        if form.feed_forward:
            attended = rectify(linear(attended, *p["attended_layer"]))
    if form.residual:
        attended = attended + (linear(queries, *p["residual_map"]) if form.paper else projected)
    if form.norm:
        attended = layer_norm(attended, attended.shape[-1:], *p["attended_norm"], EPSILON)
    if not form.feed_forward:
        return attended
    last = rectify(linear(attended, *p["last_layer"]))
    last = attended + last if form.residual else last
    return layer_norm(last, last.shape[-1:], *p["last_norm"], EPSILON) if form.norm else last


def rectify(values: Tensor) -> Tensor:
    """Return ReLU of the values; in compiled code with a gradient that the compiler makes fast on the CPU."""
    if torch.compiler.is_compiling() and not requires_plain_equation() and values.device.type == "cpu":
        return cast(Any, CompiledRelu).apply(values)
    return torch.relu(values)


class CompiledRelu(torch.autograd.Function):
    """ReLU whose gradient is a product.

    The compiler would keep a boolean mask of ``torch.relu`` for the backward pass, which it writes one byte at a time.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        rectified = values.relu()
        ctx.save_for_backward(rectified)
        return rectified

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (rectified,) = ctx.saved_tensors
        return grad_outputs[0] * rectified.sign()


def layers_of(parameters: Sequence[Tensor], form: Form) -> Layers:
    """Return weight and bias of each layer by its name."""
    return dict(zip(form.layers(), zip(parameters[::2], parameters[1::2], strict=True), strict=True))


def maps_by_head(p: Layers, form: Form) -> tuple[Tensor, Tensor]:
    """Return the weights of the key and value maps of each head, (H, d, E) each."""
    return weight_by_head(p["key_map"][0], form.num_heads), weight_by_head(p["value_map"][0], form.num_heads)


# The elements


class PaddedSets:
    """Padded sets, and the gradient of their elements once ``pull_back`` was called for every step."""

    offsets: Tensor | None = None

    def __init__(self, elements: Tensor, mask: Presence | None) -> None:
        self.elements, self.mask = elements, mask
        self.num_sets = elements.shape[0]
        self.nonempty = None if mask is None else mask.any(dim=1)
        self.small: bool | None = None
        self.stored: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.accumulated: Tensor | None = None

    def attend(self, folded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attention-weighted means (B, M, E) of the elements, and the softmax statistics."""
        if folded.shape[0] != self.num_sets:
            folded = folded.expand(self.num_sets, -1, -1)
        if self.small is None:
            self.small = self.offsets is None and kernels.stores_weights(folded.shape[1], self.elements, folded.dtype)
        if self.small:
            return kernels.stored_mean(folded, self.elements, self.mask)
        return kernels.softmax_mean(folded, self.elements, self.mask, store=False, offsets=self.offsets)

    def pull_back(self, folded: Tensor, statistics: Tensor, mean: Tensor, grad_mean: Tensor, need: bool) -> Tensor:
        """Return the gradient of the folded queries, (B, M, E); with ``need``, store that of the elements."""
        folded = folded.expand(self.num_sets, -1, -1)
        if statistics.dim() == 3:
            products = torch.bmm(grad_mean, self.elements.transpose(1, 2))
            grad_scores = kernels.softmax_backward(products, statistics)
            if need:
                self.stored.append((statistics, grad_scores, grad_mean, folded))
            return torch.bmm(grad_scores, self.elements)
        accumulate = self.accumulated is not None
        if need and not accumulate:
            self.accumulated = torch.empty_like(self.elements)
        return kernels.backward_in_chunks(
            folded, self.elements, self.mask, mean, statistics, grad_mean, self.accumulated, accumulate=accumulate,
            offsets=self.offsets,
        )  # fmt: skip

    def gradient(self) -> Tensor:
        """Return the gradient of the elements."""
        if self.accumulated is not None:
            return self.accumulated
        weights, grad_scores, grad_means, folded = zip(*self.stored, strict=True)
        if len(weights) == 1:
            total = torch.bmm(weights[0].transpose(1, 2), grad_means[0])
            return total.baddbmm_(grad_scores[0].transpose(1, 2), folded[0])
        left = torch.cat([*weights, *grad_scores], dim=1)  # (B, 2 L M, N)
        return torch.bmm(left.transpose(1, 2), torch.cat([*grad_means, *folded], dim=1))


class ProjectedSets(PaddedSets):
    """Padded sets that are attended to by their keys and values."""

    def __init__(self, elements: Tensor, mask: Presence | None) -> None:
        self.elements, self.mask = elements, mask
        self.num_sets = elements.shape[0]
        self.accumulated: Tensor | None = None


class SetsByOffsets(PaddedSets):
    """Packed sets on a device whose kernel reads them as they are."""

    def __init__(self, elements: Tensor, weights: Tensor | None, offsets: Tensor) -> None:
        self.elements, self.mask, self.offsets = elements, weights, offsets
        sizes = offsets.diff()
        self.num_sets = len(sizes)
        if weights is not None:
            owners = torch.repeat_interleave(sizes, output_size=len(weights))
            sizes = torch.zeros_like(sizes).index_add_(0, owners, (weights != 0).long())
        self.nonempty = sizes > 0
        self.small = False
        self.accumulated: Tensor | None = None


class PackedSets:
    """Packed sets in buckets, with the methods of PaddedSets."""

    def __init__(self, batch: SetBatch) -> None:
        self.batch = batch
        self.buckets = list(split_into_buckets(batch))
        self.num_sets = len(batch)
        self.nonempty = None
        if any(bucket.mask is not None for bucket in self.buckets):
            self.nonempty = torch.ones_like(batch.sizes, dtype=torch.bool)
            for bucket in self.buckets:
                if bucket.mask is not None:
                    self.nonempty[bucket.sets] = bucket.mask.any(dim=1)
        self.accumulated: Tensor | None = None
        self.grads = list[Tensor]()  # of the elements of each bucket; views where it needs no padding

    def attend(self, folded: Tensor) -> tuple[Tensor, Tensor]:
        folded = folded.expand(self.num_sets, -1, -1)
        mean = torch.empty_like(folded, memory_format=torch.contiguous_format)
        log = folded.new_empty(folded.shape[:2])
        for bucket in self.buckets:
            own = of_sets(folded, bucket.sets)
            mean[bucket.sets], log[bucket.sets] = kernels.softmax_mean(own, bucket.elements, bucket.mask, store=False)
        return mean, log

    def pull_back(self, folded: Tensor, statistics: Tensor, mean: Tensor, grad_mean: Tensor, need: bool) -> Tensor:
        folded = folded.expand(self.num_sets, -1, -1)
        grad_folded = torch.empty_like(folded, memory_format=torch.contiguous_format)
        accumulate = bool(self.grads)
        if need and not accumulate:
            self.accumulated = torch.empty_like(self.batch.elements)
            for bucket in self.buckets:
                view = bucket.view_of(self.accumulated)
                self.grads.append(torch.empty_like(bucket.elements) if view is None else view)
        for index, bucket in enumerate(self.buckets):
            sets = bucket.sets
            grad_folded[sets] = kernels.backward_in_chunks(
                of_sets(folded, sets), bucket.elements, bucket.mask, mean[sets], statistics[sets], grad_mean[sets],
                self.grads[index] if need else None, accumulate=accumulate,
            )  # fmt: skip
        return grad_folded

    def gradient(self) -> Tensor:
        assert self.accumulated is not None
        for bucket, grad in zip(self.buckets, self.grads, strict=True):
            if bucket.start is None:
                bucket.write(grad, self.accumulated)
        return self.accumulated


def of_sets(queries: Tensor, sets: Tensor) -> Tensor:
    """Return the queries of some sets; queries that all sets share are not copied."""
    return queries[: len(sets)] if queries.stride(0) == 0 else queries[sets]


class TracedSets(PaddedSets):
    """The shapes of sets, for a trace."""

    def __init__(self, elements: Tensor, mask: Tensor | None, offsets: Tensor | None) -> None:
        self.elements, self.packed = elements, offsets is not None
        self.num_sets = elements.shape[0] if offsets is None else offsets.shape[0] - 1
        self.nonempty = None

    def attend(self, folded: Tensor) -> tuple[Tensor, Tensor]:
        folded = folded.expand(self.num_sets, -1, -1)
        stored = not self.packed and kernels.stores_weights(folded.shape[1], self.elements, folded.dtype)
        statistics = folded.new_empty((*folded.shape[:2], *self.elements.shape[1 : 1 + stored]))
        return torch.empty_like(folded, memory_format=torch.contiguous_format), statistics


def sets_of(
    elements: Tensor, mask: Tensor | None, offsets: Tensor | None, num_queries: int, order: Order = "absorb"
) -> PaddedSets | PackedSets:
    """Return padded sets, or packed sets if there are ``offsets``; then ``mask`` are their weights.

    ``num_queries`` are those of a set, over all heads.
    """
    if offsets is None:
        return ProjectedSets(elements, mask) if order == "project" else PaddedSets(elements, mask)
    if kernels.device_kernel(elements, offsets.shape[0] - 1, num_queries) is not None:
        return SetsByOffsets(elements, mask, offsets)
    return PackedSets(SetBatch(elements, offsets, mask))


# The attention of one step


Pairs = dict[str, list[tuple[Tensor, Tensor]]]
"""Gradients and inputs of the rows of each layer, one pair per step; for a norm, the gradients of its parameters."""


class AbsorbedAttention:
    """Attention to the elements themselves, without projecting the set, and its backward pass."""

    num_saved = 4
    """Number of tensors of a step that ``attend`` returns for the backward pass."""

    def __init__(self, sets: PaddedSets | PackedSets, p: Layers, form: Form, count: int) -> None:
        self.sets, self.num_heads, self.count = sets, form.num_heads, count
        self.key_weight, self.value_weight = maps_by_head(p, form)
        self.value_bias = p["value_map"][1]
        self.bias_by_head = self.value_bias.view(form.num_heads, 1, -1)
        self.value_weight_transposed = self.value_weight.transpose(1, 2)

    def begin(self) -> list[Tensor]:
        """Return what all steps need."""
        return []

    def resume(self, stack: list[Tensor]) -> None:
        """Remove from the saved tensors what ``begin`` returned."""

    def attend(self, scaled: Tensor) -> tuple[Tensor, ...]:
        """Attend with scaled queries, (R, D) or for one set; return what the backward pass saves, and the heads."""
        sets, count, dim = self.sets, self.count, self.value_bias.shape[0]
        queries_by_head = scaled.view(-1, self.num_heads, dim // self.num_heads).transpose(0, 1)
        folded = fold(torch.bmm(queries_by_head, self.key_weight), scaled.shape[0] // count, count)
        mean, statistics = sets.attend(folded)
        heads = torch.baddbmm(self.bias_by_head, unfold(mean, self.num_heads), self.value_weight_transposed)
        attended = heads.transpose(0, 1).reshape(sets.num_sets * count, dim).contiguous()  # a view if d = 1
        if sets.nonempty is not None:
            attended.view(sets.num_sets, count * dim).mul_(sets.nonempty[:, None])
        return folded, mean, statistics, attended

    def pull_back(
        self, grad: Tensor, scaled: Tensor, heads: Tensor, kept: Sequence[Tensor], pairs: Pairs, need_elements: bool
    ) -> Tensor:
        """Return the gradient of the scaled queries from that of the heads, (R, D)."""
        sets, width = self.sets, self.value_bias.shape[0] // self.num_heads
        statistics, mean, folded = kept
        if sets.nonempty is not None:
            by_set = grad.view(sets.num_sets, self.count * grad.shape[1])
            grad = (by_set * sets.nonempty[:, None]).view(grad.shape)
        grad_by_head = grad.view(-1, self.num_heads, width).transpose(0, 1)  # (H, R, d)
        grad_mean = fold(torch.bmm(grad_by_head, self.value_weight), sets.num_sets, self.count)
        grad_folded = sets.pull_back(folded, statistics, mean, grad_mean, need_elements)  # (B, M, E)
        grad_folded = grad_folded.sum(dim=0, keepdim=True) if scaled.shape[0] != grad.shape[0] else grad_folded
        grad_absorbed = unfold(grad_folded, self.num_heads)  # (H, R, E)
        pairs["value_map"].append((grad_by_head, unfold(mean, self.num_heads)))
        pairs["key_map"].append((scaled.view(-1, self.num_heads, width).transpose(0, 1), grad_absorbed))
        return torch.bmm(grad_absorbed, self.key_weight.transpose(1, 2)).transpose(0, 1).reshape(scaled.shape)

    def finish(self, pairs: Pairs, need_elements: bool) -> None:
        """Complete the gradients after the first step."""


class ProjectedAttention:
    """The same from keys and values of all elements, for small sets: fewer calls, and larger products."""

    num_saved = 2

    def __init__(self, sets: "ProjectedSets", p: Layers, form: Form, count: int) -> None:
        self.sets, self.p = sets, p
        elements, dim = sets.elements, p["value_map"][1].shape[0]
        self.rows = elements.reshape(-1, elements.shape[2])
        self.by_query = (-1, count, form.num_heads, dim // form.num_heads)
        self.by_element = (sets.num_sets, elements.shape[1], form.num_heads, dim // form.num_heads)
        mask, self.bias = sets.mask, None
        if mask is not None:
            self.bias = kernels.additive_mask(mask[:, None, None, :], elements)
            self.empty = ~mask.any(dim=1)[:, None, None]

    def begin(self) -> list[Tensor]:
        """Return keys and values; the key bias cancels in the softmax."""
        (key_weight, _), (value_weight, value_bias) = self.p["key_map"], self.p["value_map"]
        keys, values = torch.mm(self.rows, key_weight.t()), torch.addmm(value_bias, self.rows, value_weight.t())
        self.pair = [part.view(self.by_element).transpose(1, 2) for part in (keys, values)]
        return [*self.pair]

    def resume(self, stack: list[Tensor]) -> None:
        self.pair, stack[:2] = stack[:2], []
        self.grads: list[Tensor] = []

    def attend(self, scaled: Tensor) -> tuple[Tensor, ...]:
        forward = kernels.private_operator(kernels.FLASH_FORWARD)
        heads, log = forward(self.queries(scaled), *self.pair, 0.0, False, attn_mask=self.bias, scale=1.0)
        if self.bias is not None:
            log = log.masked_fill(self.empty, torch.inf)
        return log, heads.transpose(1, 2).reshape(-1, self.p["value_map"][1].shape[0])

    def queries(self, scaled: Tensor) -> Tensor:
        """Return scaled queries of each set and head, (B, H, K, d)."""
        queries = scaled.view(self.by_query).transpose(1, 2)
        return queries if queries.shape[0] == self.sets.num_sets else queries.expand(self.sets.num_sets, -1, -1, -1)

    def pull_back(
        self, grad: Tensor, scaled: Tensor, heads: Tensor, kept: Sequence[Tensor], pairs: Pairs, need_elements: bool
    ) -> Tensor:
        backward = kernels.private_operator(kernels.FLASH_BACKWARD)
        grad_heads, attended = (part.view(self.by_query).transpose(1, 2) for part in (grad, heads))
        grad_queries, *grads = backward(
            grad_heads, self.queries(scaled), *self.pair, attended, kept[0], 0.0, False, attn_mask=self.bias, scale=1.0
        )
        if self.grads:
            for total, part in zip(self.grads, grads, strict=True):
                total.add_(part)
        else:
            self.grads = grads
        grad_queries = grad_queries.transpose(1, 2)
        if scaled.shape[0] != grad.shape[0]:
            grad_queries = grad_queries.sum(dim=0)
        return grad_queries.reshape(scaled.shape)

    def finish(self, pairs: Pairs, need_elements: bool) -> None:
        keys, values = (grad.transpose(1, 2).reshape(len(self.rows), -1) for grad in self.grads)
        pairs["key_map"].append((keys, self.rows))
        pairs["value_map"].append((values, self.rows))
        if need_elements:
            total = torch.mm(keys, self.p["key_map"][0]).addmm_(values, self.p["value_map"][0])
            self.sets.accumulated = total.view(self.sets.elements.shape)


def attention_of(
    sets: PaddedSets | PackedSets, p: Layers, form: Form, count: int
) -> AbsorbedAttention | ProjectedAttention:
    """Return the attention of a step, for ``count`` queries per set."""
    if isinstance(sets, ProjectedSets):
        return ProjectedAttention(sets, p, form, count)
    return AbsorbedAttention(sets, p, form, count)


# Both passes


def forward_steps(
    queries: Tensor, sets: PaddedSets | PackedSets, parameters: Sequence[Tensor], form: Form
) -> list[Tensor]:
    """Return what the backward pass needs of every step; the last tensor is the result, (R, D)."""
    p = layers_of(parameters, form)
    transposed = {name: weight.t() for name, (weight, _) in p.items() if weight.dim() == 2}
    count = queries.shape[1]
    attention = attention_of(sets, p, form, count)
    saved = attention.begin()
    rows = queries.reshape(-1, queries.shape[2])
    for _ in range(form.num_steps):
        scaled = torch.addmm(p["query_map"][1], rows, transposed["query_map"], beta=form.scale, alpha=form.scale)
        saved.append(scaled)
        saved += attention.attend(scaled)
        attended = saved[-1]
        if form.paper:
            attended = torch.addmm(p["output_map"][1], attended, transposed["output_map"])
            saved.append(attended)
            if form.feed_forward:
                attended = torch.addmm(p["attended_layer"][1], attended, transposed["attended_layer"]).relu_()
                saved.append(attended)
        if form.residual and form.paper:
            added = torch.addmm(p["residual_map"][1], rows, transposed["residual_map"])
            attended = add_rows(attended, added, count)
        elif form.residual:
            attended = add_rows(attended, scaled, count, alpha=1 / form.scale)
        saved += [attended] * form.residual
        if form.norm:
            saved += torch.native_layer_norm(attended, attended.shape[-1:], *p["attended_norm"], EPSILON)
            attended = saved[-3]
        if form.feed_forward:
            last = torch.addmm(p["last_layer"][1], attended, transposed["last_layer"]).relu_()
            saved.append(last)
            if form.residual:
                last = attended + last
                saved.append(last)
            if form.norm:
                saved += torch.native_layer_norm(last, last.shape[-1:], *p["last_norm"], EPSILON)
                last = saved[-3]
            attended = last
        rows = attended
        if form.norm:  # the output comes last, after mean and deviation
            saved.append(saved.pop(-3))
    return saved


def add_rows(rows: Tensor, other: Tensor, count: int, *, alpha: float = 1.0) -> Tensor:
    """Add ``alpha`` times other rows, which may be those of one set, to the rows (R, D) of all sets."""
    if other.shape[0] == rows.shape[0]:
        return torch.add(rows, other, alpha=alpha)
    by_set = rows.view(rows.shape[0] // count, count, rows.shape[1])
    return torch.add(by_set, other, alpha=alpha).view(rows.shape)


def backward_steps(
    grad: Tensor,
    queries: Tensor,
    sets: PaddedSets | PackedSets,
    parameters: Sequence[Tensor],
    saved: Sequence[Tensor],
    form: Form,
    need_elements: bool,
) -> list[Tensor]:
    """Return the gradients of the queries and the parameters from that of the result, (R, D); ``sets`` has the rest."""
    p, stack = layers_of(parameters, form), list(saved)
    num_sets, count = sets.num_sets, queries.shape[1]
    attention = attention_of(sets, p, form, count)
    attention.resume(stack)
    pairs: Pairs = {name: [] for name in p}

    def norm_backward(name: str, grad: Tensor, values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        need = [True, True, True]
        shape = values.shape[-1:]
        grad, *pair = torch.ops.aten.native_layer_norm_backward(grad, values, shape, mean, deviation, *p[name], need)
        pairs[name].append((pair[0], pair[1]))
        return grad

    for step in reversed(range(form.num_steps)):
        mean1 = deviation1 = mean2 = deviation2 = normed = last = summed = inner = output = cast(Tensor, None)
        if form.norm:
            normed, deviation2, mean2 = stack.pop(), stack.pop(), stack.pop()
        if form.feed_forward:
            summed = stack.pop() if form.residual else summed
            last = stack.pop()
            summed = summed if form.residual else last
            if form.norm:
                deviation1, mean1, normed = stack.pop(), stack.pop(), stack.pop()
        else:
            deviation1, mean1 = deviation2, mean2
        before_norm = stack.pop() if form.residual else cast(Tensor, None)
        if form.paper:
            inner = stack.pop() if form.feed_forward else inner
            output = stack.pop()
        heads, *kept, scaled = (stack.pop() for _ in range(attention.num_saved + 1))
        if not form.residual:
            before_norm = heads if not form.paper else inner if form.feed_forward else output
        rows = stack[-1] if step else queries.reshape(-1, queries.shape[2])
        shared = rows.shape[0] != heads.shape[0]

        if form.feed_forward:
            grad = norm_backward("last_norm", grad, summed, mean2, deviation2) if form.norm else grad
            grad_last = torch.ops.aten.threshold_backward(grad, last, 0)
            pairs["last_layer"].append((grad_last, normed if form.norm else before_norm))
            weight = p["last_layer"][0]
            grad = torch.addmm(grad, grad_last, weight) if form.residual else grad_last @ weight
        grad = norm_backward("attended_norm", grad, before_norm, mean1, deviation1) if form.norm else grad
        grad_residual = grad.view(num_sets, count, grad.shape[1]).sum(dim=0) if shared and form.residual else grad
        if form.paper:
            if form.residual:
                pairs["residual_map"].append((grad_residual, rows))
            if form.feed_forward:
                grad = torch.ops.aten.threshold_backward(grad, inner, 0)
                pairs["attended_layer"].append((grad, output))
                grad = grad @ p["attended_layer"][0]
            pairs["output_map"].append((grad, heads))
            grad = grad @ p["output_map"][0]
        grad_scaled = attention.pull_back(grad, scaled, heads, kept, pairs, need_elements)
        if form.residual and not form.paper:
            grad_queries = torch.add(grad_residual, grad_scaled, alpha=form.scale)
        else:
            grad_queries = grad_scaled.mul_(form.scale)
        pairs["query_map"].append((grad_queries, rows))
        grad = grad_queries @ p["query_map"][0]
        if form.residual and form.paper:
            grad = grad.addmm_(grad_residual, p["residual_map"][0])
    attention.finish(pairs, need_elements)
    return [grad.view(queries.shape), *(part for name in form.layers() for part in parameter_gradients(name, pairs, p))]


def parameter_gradients(name: str, pairs: Pairs, p: Layers) -> tuple[Tensor, Tensor]:
    """Return the gradients of a weight and a bias, from the rows of all steps."""
    weight, bias = p[name]
    firsts, seconds = zip(*pairs[name], strict=True)
    if name in ("attended_norm", "last_norm"):
        return cast(Tensor, sum(firsts)), cast(Tensor, sum(seconds))
    dim = firsts[0].dim() - 2  # of the rows; by head, they are the second dimension
    first, second = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim) for parts in (firsts, seconds))
    grad = (first.mT @ second).reshape(weight.shape)
    # The key bias cancels in the softmax, but needs a gradient, of zero: distributed training waits for it.
    return grad, torch.zeros_like(bias) if name == "key_map" else first.sum(dim=dim).reshape(bias.shape)


# Autograd, and operators for compiled code


class AttendInSteps(torch.autograd.Function):
    """Autograd function of ``attend_in_steps``."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        form, order, queries, elements, mask, offsets, *parameters = inputs
        with threads_for(queries, elements, offsets, form):
            sets = sets_of(elements, mask, offsets, form.num_heads * queries.shape[1], order)
            saved = forward_steps(queries, sets, parameters, form)
        ctx.form, ctx.order = form, order
        ctx.save_for_backward(queries, elements, mask, offsets, *parameters, *saved)
        return saved[-1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        queries, elements, mask, offsets, *rest = ctx.saved_tensors
        count = 2 * len(ctx.form.layers())
        parameters, saved = rest[:count], rest[count:]
        need = ctx.needs_input_grad
        needed = (need[2], need[3], *need[6:])
        with backward_without_autocast(queries):
            if torch.is_grad_enabled():  # the gradient itself will be differentiated
                output = plain_rows(queries, elements, mask, offsets, parameters, ctx.form)
                grads = differentiable_gradients(output, (queries, elements, *parameters), needed, grad_outputs[0])
            else:
                grad, num_queries = grad_outputs[0].contiguous(), ctx.form.num_heads * queries.shape[1]
                sets = sets_of(elements, mask, offsets, num_queries, ctx.order)
                with threads_for(queries, elements, offsets, ctx.form):
                    grads = gradients(grad, queries, sets, parameters, saved, ctx.form, need[3])
        grads = [grad if use else None for grad, use in zip(grads, needed, strict=True)]
        return None, None, *grads[:2], None, None, *grads[2:]


def gradients(
    grad: Tensor,
    queries: Tensor,
    sets: PaddedSets | PackedSets,
    parameters: Sequence[Tensor],
    saved: Sequence[Tensor],
    form: Form,
    need_elements: bool,
) -> list[Tensor]:
    """Return the gradients of queries, elements (without elements if there is no need) and parameters."""
    first, *others = backward_steps(grad, queries, sets, parameters, saved, form, need_elements)
    return [first, sets.gradient() if need_elements else grad.new_empty(0), *others]


def plain_rows(
    queries: Tensor,
    elements: Tensor,
    mask: Tensor | None,
    offsets: Tensor | None,
    parameters: Sequence[Tensor],
    form: Form,
) -> Tensor:
    """Return the result as rows, by the plain equation."""
    if offsets is not None:
        batch = SetBatch(elements, offsets, mask)
        elements, slots = batch.to_padded()
        mask = slots if batch.weights is None else batch.padded_weights()
    return plain_steps(queries, elements, mask, parameters, form).flatten(0, 1)


FORM = "int num_heads, int num_steps, float scale, bool paper, bool residual, bool feed_forward, bool norm"
SETS = "Tensor queries, Tensor elements, Tensor? mask, Tensor? offsets, Tensor[] parameters"
library.define(f"steps({SETS}, {FORM}) -> Tensor[]")
library.define(f"steps_backward(Tensor grad, {SETS}, Tensor[] saved, {FORM}, bool need_elements) -> Tensor[]")


def steps(
    queries: Tensor, elements: Tensor, mask: Tensor | None, offsets: Tensor | None, parameters: Any, *form: Any
) -> list[Tensor]:
    """Return the saved tensors of all steps, of which the last is the result: the operator ``picaset::steps``."""
    described = Form(*form)
    with torch.no_grad(), threads_for(queries, elements, offsets, described):
        sets = sets_of(elements, mask, offsets, described.num_heads * queries.shape[1])
        return forward_steps(queries, sets, parameters, described)


def steps_backward(
    grad: Tensor,
    queries: Tensor,
    elements: Tensor,
    mask: Tensor | None,
    offsets: Tensor | None,
    parameters: Any,
    saved: Any,
    *form: Any,
) -> list[Tensor]:
    """Return the gradients of queries, elements and parameters: the operator ``picaset::steps_backward``."""
    *values, need = form
    described = Form(*values)
    with torch.no_grad(), without_autocast(queries), threads_for(queries, elements, offsets, described):
        sets = sets_of(elements, mask, offsets, described.num_heads * queries.shape[1])
        return gradients(grad, queries, sets, parameters, saved, described, need)


def traced_steps(
    queries: Tensor, elements: Tensor, mask: Tensor | None, offsets: Tensor | None, parameters: Any, *form: Any
) -> list[Tensor]:
    """Return tensors of the shapes that ``steps`` returns."""
    return forward_steps(queries, TracedSets(elements, mask, offsets), parameters, Form(*form))


def traced_steps_backward(
    grad: Tensor, queries: Tensor, elements: Tensor, mask: Any, offsets: Any, parameters: Any, saved: Any, *form: Any
) -> list[Tensor]:
    """Return tensors of the shapes that ``steps_backward`` returns."""
    grad_elements = torch.empty_like(elements, memory_format=torch.contiguous_format)
    others = [torch.empty_like(parameter) for parameter in parameters]
    return [torch.empty_like(queries), grad_elements if form[-1] else elements.new_empty(0), *others]


def save_steps(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    queries, elements, mask, offsets, parameters, *form = inputs
    ctx.form, ctx.count = form, len(parameters)
    ctx.save_for_backward(queries, elements, mask, offsets, *parameters, *output)


def differentiate_steps(ctx: Any, grads: list[Tensor | None]) -> Any:
    queries, elements, mask, offsets, *rest = ctx.saved_tensors
    parameters, saved = rest[: ctx.count], rest[ctx.count :]
    need = ctx.needs_input_grad[1]
    grad = torch.zeros_like(saved[-1]) if grads[-1] is None else grads[-1].contiguous()
    gradients = torch.ops.picaset.steps_backward(
        grad, queries, elements, mask, offsets, parameters, saved, *ctx.form, need
    )
    return gradients[0], gradients[1] if need else None, None, None, gradients[2:], *[None] * len(ctx.form)


def one_by_one(operator: Any) -> Any:
    """Return a vmap rule that applies an operator to one example after the other."""

    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[list[Tensor], Any]:
        def example(value: Any, dim: Any, index: int) -> Any:
            if isinstance(value, (list, tuple)):
                return [example(*pair, index) for pair in zip(cast(Any, value), dim, strict=True)]
            return value if dim is None else value.select(dim, index)

        results = [
            operator(*(example(*pair, index) for pair in zip(inputs, in_dims, strict=True)))
            for index in range(info.batch_size)
        ]
        stacked = [torch.stack(parts) for parts in zip(*results, strict=True)]
        return stacked, [0] * len(stacked)

    return rule


for name, kernel, traced in (("steps", steps, traced_steps), ("steps_backward", steps_backward, traced_steps_backward)):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch_library.register_fake(f"picaset::{name}", traced, lib=library)
    torch_library.register_vmap(f"picaset::{name}", one_by_one(getattr(torch.ops.picaset, name)), lib=library)
torch_library.register_autograd("picaset::steps", differentiate_steps, setup_context=save_steps, lib=library)
