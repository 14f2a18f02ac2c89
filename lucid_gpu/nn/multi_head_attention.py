"""Attention in several heads between projections: `nn.functional.multi_head_attention_forward`.

Linear maps, `scaled_dot_product_attention` and views; where the weights are asked for, products and
a softmax instead.
"""

from __future__ import annotations

import math

from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.attention import scaled_dot_product_attention, scores_of, weighed
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.dropout import dropout
from lucid_gpu.ops.matmul import linear
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.shape import cat
from lucid_gpu.ops.softmax import softmax
from lucid_gpu.tape.overrides import overridable
from lucid_gpu.tensor import Tensor

__all__ = ["additive_mask", "multi_head_attention_forward"]


@overridable
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``softmax(q_h k_h.T / sqrt(d) + mask) v_h`` for every head h, joined and projected.

    Parameters
    ----------
    query : Tensor, shape (l, n, e) or (l, e)
    key, value : Tensor, shapes (s, n, ek), (s, n, ev) or without n
    embed_dim_to_check, num_heads : int
        e, and how many heads share it.
    in_proj_weight : Tensor, shape (3 * e, e), optional
        Of query, key and value.
    q_proj_weight, k_proj_weight, v_proj_weight : Tensor, shapes (e, e), (e, ek), (e, ev), optional
        Instead of it, with ``use_separate_proj_weight``.
    use_separate_proj_weight, training : bool
    in_proj_bias : Tensor, shape (3 * e,), optional
    bias_k, bias_v : Tensor, shape (1, 1, e), optional
        One more key and its value.
    add_zero_attn : bool
        Whether there is one more key of zeros.
    dropout_p : float
        Chance of a weight to be dropped, while ``training``.
    out_proj_weight, out_proj_bias : Tensor, shapes (e, e), (e,)
    key_padding_mask : Tensor, shape (n, s) or (s,), optional
        Of bool, True for keys that are left out; or numbers that are added.
    need_weights : bool
        Whether the weights are returned, else None.
    attn_mask : Tensor, shape (l, s) or (n * num_heads, l, s), optional
        Of bool, True for pairs that are left out; or numbers that are added.
    static_k, static_v : Tensor, shape (n * num_heads, s, e / num_heads), optional
        Instead of the projected ones.
    average_attn_weights : bool
        Whether the weights returned are the mean over heads.
    is_causal : bool
        A hint that ``attn_mask`` is the causal one.

    Returns
    -------
    Tensor, shape (l, n, e) or (l, e)
    Tensor, shape (n, l, s) or (n, num_heads, l, s), without n as the query; or None

    Raises
    ------
    AssertionError, RuntimeError
        For shapes and settings that do not fit together.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    heads, head = batch * num_heads, width // num_heads
    padding = None
    if key_padding_mask is not None:
        padding = additive_mask(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    is_causal = is_causal and padding is None and not need_weights
    mask = None if is_causal else additive_mask(attn_mask, "attn_mask", query.dtype)
    if width != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    mask = _check_mask(mask, (heads, length, key.shape[0]))
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _projected(
        (query, key, value), in_proj_weight, in_proj_bias, weights, use_separate_proj_weight
    )
    extra = _extra_key(bias_k, bias_v, static_k, static_v)
    if extra is not None:
        k, v = (cat([t, b.expand(1, batch, width)]) for t, b in zip((k, v), extra, strict=True))
    q = _in_heads(q, heads)
    k = _in_heads(k, heads) if static_k is None else _static("static_k", static_k, heads, head)
    v = _in_heads(v, heads) if static_v is None else _static("static_v", static_v, heads, head)
    if add_zero_attn:
        nothing = zeros(heads, 1, head, dtype=k.dtype, device=k.device)
        k, v = cat([k, nothing], 1), cat([v, nothing], 1)
    more = (extra is not None) + add_zero_attn
    if more:
        mask, padding = (None if t is None else pad(t, (0, more)) for t in (mask, padding))
    if padding is not None:
        spread = _padding_of_heads(padding, (batch, num_heads, k.shape[1]))
        mask = spread if mask is None else mask + spread
    p = dropout_p if training else 0.0
    shown = None
    if need_weights:
        scores = _scores(q, k, mask, p)
        out = weighed(scores, v).transpose(0, 1)
        shown = scores.unflatten(0, (batch, num_heads))
        shown = (shown.mean(1) if average_attn_weights else shown).to(q.dtype)
    else:
        q, k, v = [t.reshape(batch, num_heads, *t._expr.shape[1:]) for t in (q, k, v)]
        if mask is not None and mask.shape[0] != 1:
            mask = mask.unflatten(0, (batch, num_heads))
        out = scaled_dot_product_attention(q, k, v, mask, p, is_causal).permute(2, 0, 1, 3)
    out = linear(out.reshape(length, batch, width), out_proj_weight, out_proj_bias)
    if batched:
        return out, shown
    return out.squeeze(1), None if shown is None else shown.squeeze(0)


# PyTorch asserts in what follows, and scripts may catch what it raises.


def _check_ranks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether there is a batch."""
    rank = query.ndim
    if rank not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )
    which = "For " + ("batched (3-D)" if rank == 3 else "unbatched (2-D)") + " `query`, expected "
    if not key.ndim == value.ndim == rank:
        raise AssertionError(
            f"{which}`key` and `value` to be {rank}-D but found {key.ndim}-D and {value.ndim}-D "
            "tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != rank - 1:
        raise AssertionError(
            f"{which}`key_padding_mask` to be `None` or {rank - 1}-D but found "
            f"{key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(
                f"{which}`attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor "
                "instead"
            )
        shape = (num_heads, query.shape[0], key.shape[0])
        if rank == 2 and attn_mask.ndim == 3 and tuple(attn_mask.shape) != shape:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {shape} but got {tuple(attn_mask.shape)}"
            )
    return rank == 3


def additive_mask(mask: Tensor | None, name: str, kind: dtype) -> Tensor | None:
    """A mask of bool as numbers to add, of type ``kind``: -inf where it is True."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype.name != "bool":
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return zeros(mask.shape, dtype=kind, device=mask.device).masked_fill(mask, -math.inf)


def _check_mask(mask: Tensor | None, shape: tuple[int, int, int]) -> Tensor | None:
    """The mask with a dimension of heads."""
    if mask is None:
        return None
    wanted = shape[-mask.ndim :]
    if tuple(mask.shape) != wanted:
        raise RuntimeError(
            f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}."
        )
    return mask.unsqueeze(0) if mask.ndim == 2 else mask


def _extra_key(
    bias_k: Tensor | None, bias_v: Tensor | None, static_k: Tensor | None, static_v: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """One more key and its value, where they are given."""
    if bias_k is None and bias_v is None:
        return None
    for name, static in (("key", static_k), ("value", static_v)):
        if bias_k is not None and bias_v is not None and static is not None:
            raise AssertionError(f"bias cannot be added to static {name}.")
    if bias_v is None:
        raise AssertionError("bias_k is set but bias_v is None")
    if bias_k is None:
        raise AssertionError("bias_v is set but bias_k is None")
    return bias_k, bias_v


def _in_heads(t: Tensor, heads: int) -> Tensor:
    """From (s, n, e) to (heads, s, e * n / heads)."""
    s, n, e = t.shape
    return t.reshape(s, heads, n * e // heads if heads else e).transpose(0, 1)


def _padding_of_heads(padding: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The mask of keys, (n, s), for every head: (n * num_heads, 1, s)."""
    batch, _, keys = shape
    if tuple(padding.shape) != (batch, keys):
        raise AssertionError(
            f"expecting key_padding_mask shape of {(batch, keys)}, but got {tuple(padding.shape)}"
        )
    return padding.unsqueeze(1).expand(shape).reshape(-1, 1, keys)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """The weights of attention, where they are asked for."""
    products = scores_of(q, k, math.sqrt(1.0 / q.shape[-1]))
    weights = softmax(products if mask is None else products + mask, -1)
    return dropout(weights, p) if p else weights


def _static(name: str, static: Tensor, heads: int, head: int) -> Tensor:
    for dim, size in ((0, heads), (2, head)):
        if static.shape[dim] != size:
            raise AssertionError(
                f"expecting {name}.size({dim}) of {size}, but got {static.shape[dim]}"
            )
    return static


def _projected(
    inputs: tuple[Tensor, Tensor, Tensor],
    packed: Tensor | None,
    bias: Tensor | None,
    separate: tuple[Tensor | None, Tensor | None, Tensor | None],
    use_separate: bool,
) -> list[Tensor]:
    """Query, key and value by linear maps; what is the same tensor, by one."""
    query, key, value = inputs
    if use_separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's "
                f"{value.shape[:2]}"
            )
        biases = [None] * 3 if bias is None else list(bias.chunk(3))
        projections = []
        for name, t, w, b in zip(("query", "key", "value"), inputs, separate, biases, strict=True):
            if w is None:
                raise AssertionError(
                    f"use_separate_proj_weight is True but {name[0]}_proj_weight is None"
                )
            shape = (query.shape[-1], t.shape[-1])
            if tuple(w.shape) != shape:
                raise AssertionError(
                    f"expecting {name} weights shape of {shape}, but got {w.shape}"
                )
            projections.append(linear(t, w, b))
        return projections
    if key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if packed is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    if query is key is value:
        return list(linear(query, packed, bias).chunk(3, -1))
    width = query.shape[-1]
    sizes = [width, 2 * width] if key is value else [width] * 3
    biases = [None] * len(sizes) if bias is None else list(bias.split(sizes))
    maps = zip((query, key, value), packed.split(sizes), biases)
    projections = [linear(t, w, b) for t, w, b in maps]
    return [projections[0], *projections[1].chunk(2, -1)] if key is value else projections
