"""Transformers: layers of attention and linear maps, in stacks (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.attention import MultiheadAttention
from lucid_gpu.nn.modules.container import ModuleList
from lucid_gpu.nn.modules.dropout import Dropout
from lucid_gpu.nn.modules.linear import Linear
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.normalization import LayerNorm
from lucid_gpu.nn.multi_head_attention import additive_mask
from lucid_gpu.ops.creation import full
from lucid_gpu.tensor import Tensor

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


def _get_activation_fn(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in _ACTIVATIONS:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return _ACTIVATIONS[activation]


def _generate_square_subsequent_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """-inf above the diagonal, 0 elsewhere."""
    return full((size, size), -math.inf, device=device, dtype=dtype).triu(1)


def _detect_is_causal_mask(
    mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    """The hint, or without one whether the mask is the causal one, by default of its own size."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    size = mask.shape[-2] if size is None else size
    if tuple(mask.shape) != (size, size):
        return False
    return bool((mask == _generate_square_subsequent_mask(size, mask.device, mask.dtype)).all())


def _get_seq_len(src: Tensor, batch_first: bool) -> int:
    return src.shape[1 if batch_first and src.ndim == 3 else 0]


class _Layer(Module):
    """What both layers share: attention to itself, a linear block, a norm around each."""

    def __init__(
        self,
        attentions: tuple[str, ...],
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: Activation,
        layer_norm_eps: float,
        batch_first: bool,
        norm_first: bool,
        bias: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        for name in attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **made)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **made)
        self.norm_first = norm_first
        blocks = range(1, len(attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, **made))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    # The blocks have PyTorch's names, arguments and dropouts: subclasses override them.

    def _around(self, norm: Module, block: Callable[..., Tensor], x: Tensor, *args: Any) -> Tensor:
        """``norm(x + block(x))``, or with the norm first ``x + block(norm(x))``."""
        if self.norm_first:
            return x + block(norm(x), *args)
        result: Tensor = norm(x + block(x, *args))
        return result

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended = self.self_attn(x, x, x, **masks, is_causal=is_causal, need_weights=False)
        return self.dropout1(attended[0])


class TransformerEncoderLayer(_Layer):
    """Attention to itself, then ``linear2(activation(linear1(x)))``, each with a norm around it.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int
        Features, heads, features between the linear maps.
    dropout : float
    activation : {"relu", "gelu"} or callable
    layer_norm_eps : float
    batch_first : bool
        (batch, length, features) instead of (length, batch, features).
    norm_first : bool
        Whether norms come before the blocks instead of after them.
    bias : bool
    device, dtype : optional
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        super().__init__(("self_attn",), d_model, nhead, *settings, bias, device, dtype)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Of input's shape.

        Parameters
        ----------
        src : Tensor, shape (s, n, d_model), with ``batch_first`` (n, s, d_model), or (s, d_model)
        src_mask : Tensor, shape (s, s) or (n * nhead, s, s), optional
            Of bool, True for pairs that are left out; or numbers that are added.
        src_key_padding_mask : Tensor, shape (n, s), optional
            The same for whole keys.
        is_causal : bool
            A hint that ``src_mask`` is the causal one.
        """
        masks = (src_mask, src_key_padding_mask, is_causal)
        x = self._around(self.norm1, self._sa_block, src, *masks)
        return self._around(self.norm2, self._ff_block, x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(_Layer):
    """Attention to itself, to the encoder's output, then a linear block, with norms around them.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
    bias, device, dtype
        See `TransformerEncoderLayer`.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        attentions = ("self_attn", "multihead_attn")
        super().__init__(attentions, d_model, nhead, *settings, bias, device, dtype)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Of tgt's shape.

        Parameters
        ----------
        tgt, memory : Tensor, shapes (t, n, d_model), (s, n, d_model)
            With ``batch_first`` (n, t, d_model) and (n, s, d_model); without n for one sequence.
        tgt_mask, memory_mask : Tensor, shapes (t, t), (t, s), optional
            Of bool, True for pairs that are left out; or numbers that are added.
        tgt_key_padding_mask, memory_key_padding_mask : Tensor, shapes (n, t), (n, s), optional
            The same for whole keys.
        tgt_is_causal, memory_is_causal : bool
            Hints that the masks are causal ones.
        """
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._around(self.norm1, self._sa_block, tgt, *own)
        x = self._around(self.norm2, self._mha_block, x, memory, *other)
        return self._around(self.norm3, self._ff_block, x)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended = self.multihead_attn(
            x, mem, mem, **masks, is_causal=is_causal, need_weights=False
        )
        return self.dropout2(attended[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


class TransformerEncoder(Module):
    """Copies of an encoder layer one after another.

    Parameters
    ----------
    encoder_layer : Module
    num_layers : int
    norm : Module, optional
        Of the result.
    enable_nested_tensor, mask_check : bool
        PyTorch's; nothing depends on them here.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Shapes and masks are those of `TransformerEncoderLayer`.

        Without ``is_causal`` the mask itself is looked at.
        """
        mask = additive_mask(mask, "mask", src.dtype)
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        length = _get_seq_len(src, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(mask, is_causal, length)
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer one after another.

    Parameters
    ----------
    decoder_layer : Module
    num_layers : int
    norm : Module, optional
        Of the result.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Shapes and masks are those of `TransformerDecoderLayer`.

        Without ``tgt_is_causal`` the mask itself is looked at.
        """
        length = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, length)
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that attends to what it made of ``src``.

    Parameters
    ----------
    d_model, nhead : int
    num_encoder_layers, num_decoder_layers, dim_feedforward : int
    dropout : float
    activation : {"relu", "gelu"} or callable
    custom_encoder, custom_decoder : Module, optional
        Instead of the usual ones.
    layer_norm_eps : float
    batch_first, norm_first, bias : bool
    device, dtype : optional
        All as in `TransformerEncoderLayer`.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        layer = (*sizes, batch_first, norm_first)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, **made)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer, **made), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer, **made), num_decoder_layers, norm()
        )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """What the decoder makes of ``tgt`` and of the encoder's output, of tgt's shape.

        Parameters
        ----------
        src, tgt : Tensor, shapes (s, n, d_model), (t, n, d_model)
            With ``batch_first`` (n, s, d_model) and (n, t, d_model); without n for one sequence.
        src_mask, tgt_mask, memory_mask : Tensor, shapes (s, s), (t, t), (t, s), optional
            Of bool, True for pairs that are left out; or numbers that are added.
        src_key_padding_mask, memory_key_padding_mask : Tensor, shape (n, s), optional
            The same for whole keys.
        tgt_key_padding_mask : Tensor, shape (n, t), optional
        src_is_causal, tgt_is_causal, memory_is_causal : bool, optional
            Hints that the masks are causal ones.

        Raises
        ------
        RuntimeError
            For batches or features that do not fit together.
        """
        batch = 0 if self.batch_first else 1
        got = f"; got src of shape {list(src.shape)} and tgt {list(tgt.shape)}"
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"the batch number of src and tgt must be equal{got}")
        if not src.shape[-1] == tgt.shape[-1] == self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model ({self.d_model}){got}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The mask that hides the future: -inf above the diagonal, else 0, of shape (sz, sz)."""
        return _generate_square_subsequent_mask(sz, device, dtype)
