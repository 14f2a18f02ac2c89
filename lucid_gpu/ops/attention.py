"""Attention: in tiles where it can be, else composed of matmul and softmax.

The tiles (`lucid_gpu.kernels.attention`) keep one number a row for backward instead of the matrix
of scores. On a GPU they take masks and dropout; on a CPU these take the composition, as do masks
whose gradient is wanted, float64, heads wider than 256 and transformed tensors everywhere. The
composition's elementwise parts fuse; its scores and weights are float32, whatever the operands are.
cuDNN's kernel is used where it is installed and takes the operands, unless determinism is demanded
or a program allows others only (`allow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu.core.program import Program, Shape, both_of_load, derived
from lucid_gpu.device import device
from lucid_gpu.devices import backend, cudnn
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.kernels import attention as kernels
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.dropout import dropout, dropped, kept
from lucid_gpu.ops.generator import _draw
from lucid_gpu.ops.in_place import alias_of
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.matmul import matmul, product_as
from lucid_gpu.ops.memory_formats import kept_order, strides_of
from lucid_gpu.ops.record import keeps, record, saves_for
from lucid_gpu.ops.softmax import softmax
from lucid_gpu.tape import costly, modes
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor, from_array, on_borrowed

__all__ = ["scaled_dot_product_attention", "scores_of", "weighed"]

NAME = "scaled_dot_product_attention"


CUDNN = 3
_ON_CPU = {0: "SDPBackend.MATH", 1: "SDPBackend.FLASH_ATTENTION"}
_ON_GPU = {2: "SDPBackend.EFFICIENT_ATTENTION", CUDNN: "SDPBackend.CUDNN_ATTENTION"}
VIABLE = {"cpu": _ON_CPU, "meta": _ON_CPU, "cuda": _ON_CPU | _ON_GPU}
OURS = (1, 2, 0)  # one attention by three of PyTorch's names
EVERY = (CUDNN, *OURS)
WIDEST = 128  # columns of a head that cuDNN is given
_allowed: tuple[int, ...] | None = None  # EVERY, where no program said which


def allow(kernels: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Let attention use the first of these that can be, or of `EVERY`; what held before."""
    global _allowed
    before, _allowed = _allowed, kernels
    if kernels is not None and kernels[:1] == (CUDNN,) and set(kernels) == set(EVERY):
        _allowed = None
    return before


def allowed() -> tuple[int, ...]:
    """Which kernels attention may use, the first that is asked first."""
    return EVERY if _allowed is None else _allowed


@op(autocast="lower")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``, over each head.

    For float16, bfloat16 and float32 heads of up to 256 columns, scores are float32 and no matrix
    of them is stored, forward or backward (Dao et al., FlashAttention, 2022); on a GPU with a mask
    and dropout too, on a CPU without them. A mask whose gradient is wanted needs the matrix.

    Parameters
    ----------
    query : Tensor, shape (n, ..., heads, l, e)
    key : Tensor, shape (n, ..., heads, s, e)
    value : Tensor, shape (n, ..., heads, s, ev)
    attn_mask : Tensor, broadcast to (n, ..., heads, l, s), optional
        Of bool, True where a key takes part; or numbers added to the scores. A row that is masked
        everywhere gives zeros.
    dropout_p : float
        The chance of each weight to be dropped. Applied always: give 0 in evaluation.
    is_causal : bool
        Query i sees the keys 0 to i.
    scale : float, optional
        By default ``1 / sqrt(e)``.
    enable_gqa : bool
        Let groups of query heads share a head of key and value.

    Returns
    -------
    Tensor, shape (n, ..., heads, l, ev)

    Raises
    ------
    RuntimeError
        For shapes, types or devices that do not go together, and for a mask beside ``is_causal``.
    """
    _check(query, key, value, dropout_p)
    columns = query._expr.shape[-1]
    factor = 1.0 / math.sqrt(max(columns, 1)) if scale is None else float(scale)
    where = query._expr.program.device
    if _allowed is not None or (where.type == "cuda" and _takes_cudnn()):
        asked = (query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        output = _by_the_allowed(allowed(), asked, factor)
        if output is not None:
            return output
    output = _in_tiles(query, key, value, attn_mask, dropout_p, factor, is_causal, enable_gqa)
    if output is not None:
        return output
    if enable_gqa:
        key, value = _shared(query, key), _shared(query, value)
    if attn_mask is not None:
        lead = broadcast_shapes([tuple(query.shape[:-2]), tuple(key.shape[:-2])], NAME)
        _check_mask(query, (*lead, query.shape[-2], key.shape[-2]), attn_mask, is_causal)
    return _composed(query, key, value, attn_mask, dropout_p, is_causal, factor)


def _takes_cudnn() -> bool:
    """Whether cuDNN's attention is taken unasked: not where determinism is demanded."""
    if cudnn.settings.required or not cudnn.settings.enabled:
        return False
    return cudnn.library() is not None


def _by_the_allowed(numbers: tuple[int, ...], asked: Any, scale: float) -> Tensor | None:
    """cuDNN's attention where it is the first of those allowed that can be; None where ours is."""
    viable = [number for number in numbers if number in VIABLE[asked[0].device.type]]
    if not viable:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: this device has "
            f"{', '.join(VIABLE[asked[0].device.type].values())}; sdpa_kernel allowed none of them"
        )
    if viable[0] != CUDNN:
        return None
    reason = why_not_cudnn(*asked)
    if reason is None:
        try:
            return _by_cudnn(asked[:3], scale, asked[5])
        except cudnn.NoEngine as error:
            reason = str(error)
    if len(viable) == 1:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found: "
            f"SDPBackend.CUDNN_ATTENTION alone is allowed, but {reason}"
        )
    return None


def why_not_cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> str | None:
    """Why cuDNN's attention cannot be used, the first of PyTorch's conditions; None if it can."""
    tensors = (query, key, value)
    shapes = ", ".join(str(list(t.shape)) for t in tensors)
    if query.device.type != "cuda":
        return f"cuDNN computes on CUDA devices; query is on {query.device}"
    if cudnn.library() is None:
        return f"cuDNN is not installed: {cudnn.install()}"
    if query.dtype.name not in ("float16", "bfloat16"):
        return f"cuDNN takes float16 and bfloat16; query is {query.dtype.name}"
    if attn_mask is not None or dropout:
        return "cuDNN is given no attn_mask and no dropout here"
    if any(t.ndim != 4 for t in tensors):
        return f"cuDNN takes tensors (batch, heads, rows, columns); got {shapes}"
    (batch, heads, rows, columns), (_, groups, keys, _) = query.shape, key.shape
    if not batch == key.shape[0] == value.shape[0] or groups != value.shape[1]:
        return (
            f"cuDNN takes key and value of query's batch and of one number of heads; got {shapes}"
        )
    if any(0 in t.shape for t in tensors) or keys == 1:
        return f"cuDNN takes no empty tensors, and two keys or more; got {shapes}"
    if heads % groups if enable_gqa else heads != groups:
        return (
            f"cuDNN takes as many heads of key as of query, or groups with enable_gqa; got {shapes}"
        )
    if any(n % 8 or n > WIDEST for n in (columns, value.shape[3])):
        return f"cuDNN takes heads of up to {WIDEST} columns, a multiple of 8; got {shapes}"
    if rows == 1 and is_grad_enabled() and any(t.requires_grad for t in tensors):
        return f"cuDNN is given no single query whose gradient is wanted; got {shapes}"
    if max(batch, heads) > 65535:
        return f"cuDNN takes batches and heads up to 65535; got {shapes}"
    if open_levels and innermost(tensors) is not None:
        return "inside vmap, grad and jvp attention is composed of other ops"
    return None


def _by_cudnn(tensors: tuple[Tensor, Tensor, Tensor], scale: float, causal: bool) -> Tensor:
    trained = is_grad_enabled() and any(t.requires_grad for t in tensors)
    q, k, v = (t.array for t in tensors)
    d, where = tensors[0].dtype, tensors[0].device
    rules = kernels.Rules(scale, causal)
    operands = (q, k, v, rules, d, where, trained)
    out, sums = _computed(kernels.forward_by_cudnn, operands, (q, k, v), rules, where)
    result: Tensor = record(
        "ScaledDotProductCudnnAttentionBackward0", out, tensors, _attended_vjp, tensors, d,
        keeps_output=True, sums=sums, rules=rules, by=kernels.backward_by_cudnn,
    )  # fmt: skip
    return lay(result, _order_of_rows(tensors[0]))


def _in_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    scale: float,
    causal: bool,
    grouped: bool,
) -> Tensor | None:
    """Attention with no matrix of scores; None where the tiles do not apply."""
    tensors = (query, key, value)
    program = query._expr.program
    d, where, (a, b, c) = program.dtype, program.device, [t._expr.shape for t in tensors]
    ruled = mask is not None or dropout_p > 0
    if d not in kernels.TYPES:  # which is the type of all
        return None
    if (ruled or scale <= 0) and not kernels.takes(scale, ruled, where):
        return None
    if open_levels and innermost((*tensors, mask)) is not None:
        return None
    if not 2 + grouped <= len(a) == len(b) == len(c):
        return None
    lead = -3 if grouped else -2  # what precedes the heads, or with them, is the same for all
    if not a[:lead] == b[:lead] == c[:lead]:
        return None
    q, k, v = _heads(query), _heads(key), _heads(value)
    if not kernels.applies(q, k, v):
        return None
    rules = kernels.Rules(scale, causal)
    if mask is not None:
        _check_mask(query, (*a[:-1], b[-2]), mask, causal)
        if mask.requires_grad or len(a) > 4 and mask.ndim > 3:
            return None
        trained = is_grad_enabled() and any(t._expr.program.needs_grad for t in tensors)
        if trained and not mask.dtype.category:
            mask = mask.clone()  # as PyTorch, which saves numbers: the bools may be written
    if dropout_p:
        rules = rules._replace(dropout=kernels.Dropout(dropout_p, *_draw(None, where)))
    lies = program, a, program.strided and query._expr.leaves[0].array.strides
    results = None if modes.watchers else _results.get(lies)
    masked = rules if mask is None else rules._replace(mask=_mask_array(mask, q, k))
    if dropout_p or costly.active:
        operands = q, k, v, masked, d, where
        out, lse = _computed(kernels.forward, operands, (q, k, v), rules, where)
    else:
        out, lse = kernels.forward(q, k, v, masked, d, where)
    saved = tensors
    if len(a) != 4 and is_grad_enabled():  # there PyTorch saves scaled copies, and a view of value
        saved = alias_of(query), alias_of(key), alias_of(value)
    result: Tensor = record(
        _NODES[mask is not None], out if len(a) == 4 else out.reshape(a), tensors,
        _attended_vjp, saved if mask is None else (*saved, mask), d, results=results,
        keeps_output=True, sums=lse, rules=rules, by=kernels.backward,
    )  # fmt: skip
    if len(a) != 4:
        saves_for(result, {}, output=False)
        if program.needs_grad or key._expr.program.needs_grad:
            keeps(result, value)
    if results is None:  # else it lies as the first of such a query did
        result = lay(result, _order_of_rows(query))
        if not (modes.watchers or result._expr.program.marks):
            _results[lies] = both_of_load(result._expr.program)
    return result


_NODES = {
    False: "ScaledDotProductFlashAttentionBackward0",
    True: "ScaledDotProductEfficientAttentionBackward0",
}


def _mask_array(mask: Tensor, q: Any, k: Any) -> Any:
    """A mask's array, broadcast to (batch, heads, queries, keys)."""
    x = mask.array
    return backend(mask.device).xp.broadcast_to(x, (*q.shape[:3], k.shape[2]))


_results: dict[tuple[Program, Shape, Shape], tuple[Program, Program]] = derived(
    "results of attention, not recorded and recorded, by the query"
)


def _computed(
    compute: Callable[..., Any],
    operands: tuple[Any, ...],
    arrays: tuple[Any, ...],
    rules: kernels.Rules,
    where: device,
) -> Any:
    """What a kernel gives, by way of who counts or keeps it; a graph has it draw anew."""
    name = _NAMES[compute]

    def run() -> Any:
        if rules.dropout is None:
            return compute(*operands)
        return backend(where).call(name, compute, *operands)

    if not costly.active:
        return run()
    p = 0.0 if rules.dropout is None else rules.dropout.p
    return costly.run(f"_scaled_dot_product_{name}", where, run, arrays, (p, rules.causal))


_NAMES: dict[Any, str] = {
    kernels.forward: "flash_attention",
    kernels.backward: "flash_attention_backward",
    kernels.forward_by_cudnn: "cudnn_attention",
    kernels.backward_by_cudnn: "cudnn_attention_backward",
}


def _order_of_rows(query: Tensor) -> tuple[int, ...] | None:
    """How the result lies: as queries whose rows are dense, else row-major, as PyTorch's."""
    return kept_order(query) if strides_of(query)[-1] == 1 else None


def _heads(t: Tensor) -> Any:
    """An array of shape (batch, heads, rows, columns)."""
    x = t.array
    if x.ndim == 4:
        return x
    heads = x.shape[-3] if x.ndim > 2 else 1
    return x.reshape(math.prod(x.shape[:-3]), heads, *x.shape[-2:])


def _attended_vjp(node: Any, g: Tensor) -> Any:
    query, key, value, *masks, out = node.saved_values
    mask = masks[0] if masks else None
    if is_grad_enabled() or (open_levels and innermost((g, query, key, value)) is not None):
        return _formulas(g, query, key, value, mask, node.rules)
    q, k, v, o = [_heads(t) for t in (query, key, value, out)]
    rules = node.rules
    if mask is not None:
        rules = rules._replace(mask=_mask_array(mask, q, k))
    operands = ((q, k, v, o, node.sums), _heads(g), rules, g.dtype, g.device)
    if rules.dropout is None and not costly.active:
        gradients = node.by(*operands)
    else:
        gradients = _computed(node.by, operands, (operands[1], q, k, v, o), rules, g.device)
    like = g._expr.program
    plain = not (modes.watchers or like.marks)
    found: list[Tensor | None] = [None, None, None]
    for i, (x, t) in enumerate(zip(gradients, (query, key, value), strict=True)):
        if node.needs_input_grad[i]:
            x = x if query.ndim == 4 else x.reshape(t.shape)
            if plain and x.base is not None:  # perhaps of all three together, as of split's input
                found[i] = on_borrowed(like, x)
            else:
                found[i] = from_array(x, g.dtype, g.device)
    return found


def _formulas(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    rules: kernels.Rules,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by ops, to be differentiated again."""
    k, v = (x if x.ndim < 3 else _shared(query, x) for x in (key, value))
    scores, d = scores_of(query, k, rules.scale), query.dtype
    weights, dead = _weights(scores, mask, rules.causal)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    slope, used = _product(g, v.mT, d.compute), weights
    if rules.dropout is not None:
        p, seed, draw = rules.dropout
        shown = kept(weights, p, (seed, draw))
        slope, used = (dropped(x, shown, p, False) for x in (slope, weights))
    slope = weights * (slope - (slope * weights).sum(-1, keepdim=True)) * rules.scale
    dk, dv = _product(slope.mT, query, d), _product(used.mT, g, d)
    return _product(slope, k, d), _of_groups(dk, key), _of_groups(dv, value)


def _of_groups(g: Tensor, x: Tensor) -> Tensor:
    """The gradient of heads that groups of heads share."""
    if g.shape == x.shape:
        return g
    groups = x.shape[-3]
    return g.reshape(*x.shape[:-3], groups, g.shape[-3] // groups, *x.shape[-2:]).sum(-3)


def scores_of(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """``query @ key.mT * scale``; of 16-bit floats in float32, as all is that is made of them."""
    d = query.dtype
    if d.compute is d or key.dtype is not d:
        return matmul(query * scale, key.mT)
    return product_as(query, key.mT, d.compute) * scale


def weighed(weights: Tensor, value: Tensor) -> Tensor:
    """The sum of values, in their type."""
    return _product(weights, value, value.dtype)


def _product(a: Tensor, b: Tensor, d: dtype) -> Tensor:
    return matmul(a, b) if a.dtype is b.dtype is d else product_as(a, b, d)


def _weights(scores: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor | None]:
    """The weights, and which rows a mask hides whole: theirs are those of some other mask."""
    if causal:
        scores = scores.where(_causal(scores), -math.inf)
    if mask is None:
        return softmax(scores, -1), None
    dead = _dead_rows(mask)
    if mask.dtype.category:
        scores = scores + mask.masked_fill(dead, 0.0).to(scores.dtype)
    else:
        scores = scores.where(mask.logical_or(dead), -math.inf)
    return softmax(scores, -1), dead


def _composed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """By matmul and softmax, differentiable to any order."""
    saved = _saved_by_one_op(query, key, value, mask, dropout_p)
    if saved is None and is_grad_enabled():  # there PyTorch saves scaled copies
        query, key = alias_of(query), alias_of(key)
    result = _attended(query, key, value, mask, dropout_p, is_causal, scale)
    return result if saved is None else keeps(result, *saved, output=True)


def _saved_by_one_op(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, ...] | None:
    """What PyTorch's attention saves beside its result where it is one op; None where it is not."""
    if query.ndim != 4 or dropout_p or not query.shape[-1] == key.shape[-1] == value.shape[-1]:
        return None
    if mask is None or not mask.dtype.category:  # of a mask of bools it saves numbers
        return (query, key, value)
    return None if mask.requires_grad else (query, key, value, mask)


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    scores = scores_of(query, key, scale)
    if not scores.shape[-1]:  # no key: sums of nothing
        return weighed(scores, value)
    weights, dead = _weights(scores, mask, is_causal)
    result = weighed(dropout(weights, dropout_p) if dropout_p else weights, value)
    return result if dead is None else result.masked_fill(dead, 0.0)


def _dead_rows(mask: Tensor) -> Tensor:
    """Where a row of a mask hides every key: its softmax would be NaN."""
    if mask.dtype.category:
        return mask.eq(-math.inf).all(-1, keepdim=True)
    return mask.logical_not().all(-1, keepdim=True)


def _causal(scores: Tensor) -> Tensor:
    """True where a query's number is not below the key's."""
    queries, keys = scores.shape[-2:]
    rows = arange(queries, device=scores.device).unsqueeze(1)
    return rows >= arange(keys, device=scores.device)


def _shared(query: Tensor, x: Tensor) -> Tensor:
    """Keys or values with each head repeated for the query heads that share it."""
    if min(query.ndim, x.ndim) < 3:
        raise RuntimeError(
            f"{NAME}(): enable_gqa needs a dimension of heads: got query of shape "
            f"{list(query.shape)} and key or value of shape {list(x.shape)}"
        )
    heads, own = query.shape[-3], x.shape[-3]
    if own == heads:
        return x
    if own == 0 or heads % own:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query, got "
            f"{own} and {heads}"
        )
    spread = x.unsqueeze(-3).expand(*x.shape[:-2], heads // own, *x.shape[-2:])
    return spread.reshape(*x.shape[:-3], heads, *x.shape[-2:])


def _check(query: Tensor, key: Tensor, value: Tensor, dropout_p: float) -> None:
    for position, (name, x) in enumerate(zip(("query", "key", "value"), (query, key, value)), 1):
        if type(x) is not Tensor:
            require_tensor(NAME, name, position, x)
    q, k, v = query._expr.program, key._expr.program, value._expr.program
    a, b, c = query._expr.shape, key._expr.shape, value._expr.shape
    if len(a) < 2 or len(b) < 2 or len(c) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not q.dtype is k.dtype is v.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype.name} key.dtype: {key.dtype.name} and value.dtype: {value.dtype.name} "
            "instead."
        )
    if not q.device is k.device is v.device:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device} key.device: {key.device} and value.device: {value.device} instead."
        )
    if q.dtype.category != 2:
        raise RuntimeError(f"{NAME}(): expected floating point tensors, got {query.dtype.name}")
    if a[-1] != b[-1] or b[-2] != c[-2]:
        raise RuntimeError(
            f"{NAME}(): query and key must have rows of one length, key and value as many rows; "
            f"got query of shape {list(query.shape)}, key {list(key.shape)} and value "
            f"{list(value.shape)}"
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")


def _check_mask(query: Tensor, scores: Shape, mask: Tensor, is_causal: bool) -> None:
    if is_causal:
        raise RuntimeError(f"{NAME}: Explicit attn_mask should not be set when is_causal=True")
    require_tensor(NAME, "attn_mask", 4, mask)
    kind = mask.dtype
    if kind.category and kind is not query.dtype and kind.name != "float32":
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {kind.name} and  query.dtype: {query.dtype.name} instead."
        )
    if mask.device != query.device:
        raise RuntimeError(
            f"Expected attn_mask on {query.device}, where the query is, but it is on {mask.device}"
        )
    if mask.ndim < 2 or broadcast_shapes([scores, tuple(mask.shape)], NAME) != scores:
        raise RuntimeError(
            f"{NAME}(): attn_mask must have at least 2 dimensions and broadcast to the scores, "
            f"{list(scores)}; got shape {list(mask.shape)}"
        )
