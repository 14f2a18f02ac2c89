"""Attention between projections."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.linear import NonDynamicallyQuantizableLinear
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    r"""``concat_h(softmax(q_h k_h^T / sqrt(d)) v_h) W_o`` (Vaswani et al., 2017).

    Parameters
    ----------
    embed_dim, num_heads : int
        Each head has ``d = embed_dim / num_heads`` features.
    dropout : float
        Chance of a weight to be dropped in training.
    bias : bool
        Whether the projections have one.
    add_bias_kv, add_zero_attn : bool
        One more key and value that are learned; one of zeros.
    kdim, vdim : int, optional
        Features of key and value, by default ``embed_dim``.
    batch_first : bool
        (batch, length, features) instead of (length, batch, features).
    device, dtype : optional

    Attributes
    ----------
    in_proj_weight : Parameter, shape (3 * embed_dim, embed_dim), or None
        Else ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``.
    in_proj_bias : Parameter, shape (3 * embed_dim,), or None
    out_proj : Linear
    bias_k, bias_v : Parameter, shape (1, 1, embed_dim), or None

    Raises
    ------
    ValueError, AssertionError
        For sizes that are not positive, and an ``embed_dim`` that ``num_heads`` does not divide.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"{type(self).__name__}: embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError(
                f"{type(self).__name__}: embed_dim must be divisible by num_heads, got {embed_dim} "
                f"and {num_heads}"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(shape, device=device, dtype=dtype))

        apart = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        if self._qkv_same_embed_dim:
            self.in_proj_weight: Any = parameter(3 * embed_dim, embed_dim)
        for letter, width in apart.items():
            made = None if self._qkv_same_embed_dim else parameter(embed_dim, width)
            self.register_parameter(f"{letter}_proj_weight", made)
        if not self._qkv_same_embed_dim:
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, parameter(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        turned = self.batch_first and query.ndim == 3
        if turned:
            own = {id(t): t for t in (query, key, value)}  # the same stay the same
            own = {i: t.transpose(0, 1) for i, t in own.items()}
            query, key, value = own[id(query)], own[id(key)], own[id(value)]
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (out.transpose(0, 1) if turned else out), weights
