"""`torch.nn.attention.flex_attention`: attention whose scores a function of the user's changes.

The scores are computed whole: memory grows with the product of the two lengths. Functions get
tensors of positions that broadcast, where PyTorch hands them one number at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from lucid_gpu import Tensor, arange, ones

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

Mask = Callable[..., Any]
_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What `flex_attention` returns beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The logarithms of the sums of exponentials, and the largest scores; None if not asked for."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Let every query see every key."""
    return token_q >= 0


def and_masks(*mask_mods: Mask) -> Mask:
    """What all of the functions let through."""

    def mask(b: Any, h: Any, q: Any, kv: Any) -> Any:
        seen = noop_mask(b, h, q, kv)
        for mod in mask_mods:
            seen = seen & mod(b, h, q, kv)
        return seen

    return mask


def or_masks(*mask_mods: Mask) -> Mask:
    """What any of the functions lets through."""

    def mask(b: Any, h: Any, q: Any, kv: Any) -> Any:
        seen = ~noop_mask(b, h, q, kv)
        for mod in mask_mods:
            seen = seen | mod(b, h, q, kv)
        return seen

    return mask


class BlockMask:
    """Which queries see which keys: a function, and the sizes that it is for.

    Attributes
    ----------
    mask_mod : callable
    shape : tuple of int
        (batch, heads, queries, keys).
    seq_lengths : pair of int
    """

    def __init__(self, mask_mod: Mask, shape: tuple[int, int, int, int]) -> None:
        self.mask_mod, self.shape = mask_mod, shape
        self.seq_lengths = shape[2:]

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape})"


def create_block_mask(
    mask_mod: Mask,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
) -> BlockMask:
    """The mask of a function.

    Parameters
    ----------
    mask_mod : callable
        ``mask_mod(batch, head, query, key)`` says whether the query sees the key.
    B, H : int or None
        None where the function does not look at the batch or the head.
    Q_LEN, KV_LEN : int
    device, BLOCK_SIZE, _compile
        Taken as PyTorch takes them: no blocks are left out.
    """
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN))


def create_mask(
    mod_fn: Mask, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """A mask as a tensor of bool, shape (B, H, Q_LEN, KV_LEN)."""
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    seen: Tensor = mod_fn(*_positions(shape, device))
    return seen & ones(shape, device=device).bool()


def _positions(shape: tuple[int, ...], device: Any) -> list[Tensor]:
    """The number of each element along each dimension."""
    rank = len(shape)
    return [
        arange(n, device=device).reshape([1] * d + [n] + [1] * (rank - d - 1))
        for d, n in enumerate(shape)
    ]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """``softmax(score_mod(query key^T scale)) value``, where the mask lets the query see the key.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, queries, features)
    key : Tensor, shape (batch, heads, keys, features)
    value : Tensor, shape (batch, heads, keys, features of the result)
    score_mod : callable, optional
        ``score_mod(score, batch, head, query, key)`` gives the scores to take.
    block_mask : BlockMask, optional
    scale : float, optional
        ``1 / sqrt(features)`` by default.
    enable_gqa : bool
        Whether ``key`` and ``value`` may have fewer heads, each for several of the query's.
    return_lse : bool
        Also return the logarithms of the sums of exponentials.
    kernel_options : dict, optional
        Taken as PyTorch takes it.
    return_aux : AuxRequest, optional
        Also return an `AuxOutput` of what is asked for.

    Returns
    -------
    Tensor, shape (batch, heads, queries, features of the result), or a tuple of it and the rest
        Zeros for queries that see nothing.

    Raises
    ------
    ValueError
        For another number of heads without ``enable_gqa``; for both ``return_lse`` and
        ``return_aux``.
    """
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux: return_aux=AuxRequest(lse=True)"
        )
    if query.shape[1] != key.shape[1]:
        if not enable_gqa:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq="
                f"{query.shape[1]} and Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
            )
        repeats = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(repeats, 1) for t in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    compute = query.dtype.compute
    scores = (query.to(compute) @ key.to(compute).transpose(-2, -1)) * factor
    positions = _positions(tuple(scores.shape), query.device)
    if score_mod is not None:
        scores = score_mod(scores, *positions)
    if block_mask is not None:
        scores = scores.where(block_mask.mask_mod(*positions), -math.inf)
    largest = scores.detach().amax(-1, keepdim=True).clamp(min=-1e30)  # of a row that sees nothing
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    result = (weights / total.where(total > 0, 1.0)) @ value.to(compute)
    result = result.to(query.dtype)
    if not return_lse and return_aux is None:
        return result
    lse = (total.log() + largest).squeeze(-1)
    if return_aux is None:
        return result, lse
    most = scores.detach().amax(-1)
    return result, AuxOutput(
        lse if return_aux.lse else None, most if return_aux.max_scores else None
    )
