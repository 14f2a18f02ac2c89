"""Functions of PyTorch's top level beneath `nn.functional`: modes and reductions are numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.dtypes import bool as bool_
from lucid_gpu.dtypes import int64
from lucid_gpu.ops import batch_norm as _batch_norm
from lucid_gpu.ops import convolution as _convolution
from lucid_gpu.ops import ctc as _ctc
from lucid_gpu.ops import dropout as _dropout
from lucid_gpu.ops import embedding as _embedding
from lucid_gpu.ops import feature_dropout as _feature_dropout
from lucid_gpu.ops import grid_sample as _grid_sample
from lucid_gpu.ops import group_norm as _group_norm
from lucid_gpu.ops import layer_norm as _layer_norm
from lucid_gpu.ops import losses as _losses
from lucid_gpu.ops import margin_losses as _margin_losses
from lucid_gpu.ops import pooling as _pooling
from lucid_gpu.ops import shuffles as _shuffles
from lucid_gpu.ops import transposed_convolution as _transposed
from lucid_gpu.ops.arguments import require_float
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.elementwise import where
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

_REDUCTIONS = {1: "mean", 2: "sum"}
_MODES = ("bilinear", "nearest", "bicubic")
_BEYOND = ("zeros", "border", "reflection")


def _reduction(number: int) -> str:
    """What PyTorch makes of a number: any but 1 and 2 is none."""
    return _REDUCTIONS.get(number, "none")


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """`nn.functional.kl_div`; ``reduction`` is 0 (none), 1 (the mean) or 2 (the sum)."""
    return _losses.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`; ``reduction`` as in `kl_div`."""
    return _losses.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """`nn.functional.poisson_nll_loss`; ``reduction`` as in `kl_div`."""
    return _losses.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`; ``reduction`` as in `kl_div`."""
    how = _reduction(reduction)
    return _margin_losses.cosine_embedding_loss(input1, input2, target, margin, reduction=how)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`; ``reduction`` as in `kl_div`."""
    how = _reduction(reduction)
    return _margin_losses.hinge_embedding_loss(input, target, margin, reduction=how)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss`; ``reduction`` as in `kl_div`."""
    how = _reduction(reduction)
    return _margin_losses.margin_ranking_loss(input1, input2, target, margin, reduction=how)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`; ``reduction`` as in `kl_div`."""
    how = _reduction(reduction)
    return _margin_losses.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=how
    )


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`; ``reduction`` as in `kl_div`."""
    return _ctc.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction),
        zero_infinity,
    )  # fmt: skip


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm`, its arguments in another order; the last one says nothing."""
    return _batch_norm.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm`, as `batch_norm` here is to that of `nn.functional`."""
    return _group_norm.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`nn.functional.embedding`, the table first; a ``padding_idx`` of -1 is none."""
    padded = None if padding_idx == -1 else padding_idx
    return _embedding.embedding(
        indices, weight, padded, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Shorten, in place, the rows named by ``indices`` whose norm is above ``max_norm``."""
    with no_grad():
        rows = indices.reshape(-1).to(int64).unique()
        chosen = input.index_select(0, rows)
        input.index_copy_(0, rows, chosen.renorm(norm_type, 0, max_norm))
    return input


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout`, in place."""
    return _dropout.dropout(input, p, train, True)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout`, in place."""
    return _feature_dropout.alpha_dropout(input, p, train, True)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout`, in place."""
    return _feature_dropout.feature_alpha_dropout(input, p, train, True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels of ``(n, c, *)``.

    ValueError for a ``p`` outside ``[0, 1]``; RuntimeError for fewer than two dimensions.
    """
    return _feature_dropout.feature_dropout(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout`, in place."""
    return _feature_dropout.feature_dropout(input, p, train, True)


def grid_sampler(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """`nn.functional.grid_sample` with numbers for modes, in the order of its documentation."""
    modes = _MODES[interpolation_mode], _BEYOND[padding_mode]
    return _grid_sample.grid_sample(input, grid, *modes, align_corners)


def grid_sampler_2d(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """`grid_sampler` of images of shape (n, c, h, w)."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """`grid_sampler` of volumes of shape (n, c, d, h, w)."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`."""
    return _grid_sample.affine_grid(theta, size, align_corners)


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`channel_shuffle`."""
    return _shuffles.channel_shuffle(input, groups)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """`nn.functional.max_pool1d`, and where the largest elements are."""
    stride = None if stride in ((), []) else stride
    return _pooling.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, of shape (1, ..., n, ..., 1); over all for -1."""
    if dim == -1:
        whole: Tensor = v.norm(pow)
        return whole
    rest = tuple([d for d in range(v.ndim) if d != dim % v.ndim])
    return v.norm(pow, rest, keepdim=True) if rest else v.abs()


_PLAIN = (_convolution.conv1d, _convolution.conv2d, _convolution.conv3d)
_TRANSPOSED = (
    _transposed.conv_transpose1d,
    _transposed.conv_transpose2d,
    _transposed.conv_transpose3d,
)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """`nn.functional.conv1d` to `conv_transpose3d`, by the rank of the weights.

    RuntimeError for weights of another rank than 3 to 5.
    """
    if not 3 <= weight.ndim <= 5:
        raise RuntimeError(f"convolution(): weight must have 3 to 5 dimensions, got {weight.ndim}")
    rank = weight.ndim - 3
    if transposed:
        settings = stride, padding, output_padding, groups, dilation
        return _TRANSPOSED[rank](input, weight, bias, *settings)
    return _PLAIN[rank](input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution of sequences of shape (time, batch, channels).

    Parameters
    ----------
    weight : Tensor, shape (kernel, channels, filters)
    bias : Tensor, shape (filters,)
    pad : int
        Zeros on either side.
    """
    filters = weight.permute(2, 1, 0)
    result = _convolution.conv1d(input.permute(1, 2, 0), filters, bias, padding=pad)
    return result.permute(2, 0, 1).contiguous()


# What elements are joined with, by the reduction's name: scatter_reduce's, and the value of none.
_SEGMENTS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "max": ("amax", float("-inf")),
    "min": ("amin", float("inf")),
    "prod": ("prod", 1.0),
}
_SEGMENTS |= {"amax": _SEGMENTS["max"], "amin": _SEGMENTS["min"]}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce consecutive segments along a dimension.

    Parameters
    ----------
    data : Tensor of floating point numbers
    reduce : {"sum", "mean", "max", "min", "prod"}
        ``"amax"`` and ``"amin"`` are other names of the extrema.
    lengths : Tensor of integers, shape ``data.shape[:axis] + (segments,)``
        How long each segment is.
    offsets : Tensor of integers, shape ``data.shape[:axis] + (segments + 1,)``
        Where each segment begins, and where the last one ends; instead of ``lengths``.
    axis : int
        The last dimension of ``lengths``.
    unsafe : bool
        Do not check the lengths.
    initial : float, optional
        What each reduction begins with.

    Returns
    -------
    Tensor, of data's shape but for ``segments`` along ``axis``

    Raises
    ------
    RuntimeError
        For another ``reduce``, neither lengths nor offsets, and lengths that do not fit the data.
    NotImplementedError
        For types that are not floating point.
    """
    if reduce not in _SEGMENTS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    require_float("segment_reduce", data)
    axis += data.ndim if axis < 0 else 0
    if offsets is not None:
        lengths = offsets.diff(dim=-1)
    if lengths is None or indices is not None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if lengths.ndim != axis + 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths, but got {axis}"
        )
    if not unsafe and offsets is None:
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if bool((lengths.sum(-1) != data.shape[axis]).any()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to "
                "data.size(lengths.dim()-1) when !unsafe."
            )
    kind = data.dtype
    if reduce == "mean":  # whose sums and counts float16 may not hold
        data = data.to(kind.compute)
    shape, rest = tuple(lengths.shape), tuple(data.shape[axis + 1 :])
    how, start = _SEGMENTS[reduce]
    flat = lengths.reshape(-1)
    number = arange(flat.numel(), device=data.device).repeat_interleave(flat.to(int64))
    number = number.reshape(-1, *[1] * len(rest)).expand(number.numel(), *rest)
    begun = data.new_full((flat.numel(), *rest), start if initial is None else initial)
    rows = data.reshape(-1, *rest)[: number.shape[0]]
    if how == "sum":
        result = begun.scatter_reduce(0, number, rows, how)
    else:
        result = _of_numbers(begun, number, rows, how, start)
    if reduce == "mean":
        counts = flat.reshape(-1, *[1] * len(rest)).to(data.dtype)
        result = result / (counts if initial is None else counts.clamp(min=1))
    return result.reshape(*shape, *rest).to(kind)


def _of_numbers(begun: Tensor, number: Tensor, rows: Tensor, how: str, start: float) -> Tensor:
    """Products or extrema by segments, whose gradients PyTorch takes past what is not a number.

    The gradient of an extremum goes to the data that equal it, and not to what it began with.
    """
    bad = rows.isnan()
    numbers = where(bad, start, rows)
    zeros = begun.new_zeros(begun.shape)
    count = zeros.scatter_add(0, number, bad.to(begun.dtype))
    spoiled = zeros.scatter_add(0, number, where(bad, rows, 0.0))  # not a number, by each of them
    if how == "prod":
        product = begun.scatter_reduce(0, number, numbers, how)
        others = product * where(count > 1, float("nan"), 1.0).to(product.dtype)
        return where(count > 0, others * spoiled, product)
    joined = begun.scatter_reduce(0, number, numbers, how, include_self=False)
    beyond = joined >= begun if how == "amax" else joined <= begun
    return where(count > 0, spoiled / count.clamp(min=1), where(beyond, joined, begun))


def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`nn.functional.layer_norm`, with the means and the reciprocals of the deviations."""
    result = _layer_norm.layer_norm(input, normalized_shape, weight, bias, eps)
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return (result, *_moments(input.detach(), dims, eps, True))  # PyTorch's have no gradient


def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`nn.functional.group_norm`, with means and reciprocals of deviations, of shape (N, group)."""
    result = _group_norm.group_norm(input, group, weight, bias, eps)
    return (result, *_moments(input.reshape(N, group, -1), (2,), eps, False))


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`nn.functional.batch_norm`, with the means and reciprocals of the deviations, if training."""
    figures = running_mean, running_var, weight, bias
    result = _batch_norm.batch_norm(input, *figures, training, momentum, eps)
    if not training:
        return result, input.new_empty((0,)), input.new_empty((0,))
    dims = (0, *range(2, input.ndim))
    return (result, *_moments(input.detach(), dims, eps, False))


def _moments(input: Tensor, dims: tuple[int, ...], eps: float, keep: bool) -> tuple[Tensor, Tensor]:
    wide = input if input.dtype.itemsize > 2 else input.float()
    deviation = (wide.var(dims, correction=0, keepdim=keep) + eps).rsqrt()
    return wide.mean(dims, keep).to(input.dtype), deviation.to(input.dtype)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`nn.functional.dropout`, and where it kept elements; ``train`` may be None for True."""
    if train is False or not input.numel():
        return input.clone(), input.new_ones(input.shape, dtype=bool_)
    if p < 0.0 or p > 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    require_float("native_dropout", input)
    mask = _dropout.kept(input, p)
    return _dropout.dropped(input, mask, p, False), mask


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    kl_div, binary_cross_entropy_with_logits, poisson_nll_loss, cosine_embedding_loss,
    hinge_embedding_loss, margin_ranking_loss, triplet_margin_loss, ctc_loss, batch_norm,
    instance_norm, embedding, embedding_renorm_, dropout_, alpha_dropout_,
    feature_alpha_dropout_, feature_dropout, feature_dropout_, grid_sampler, grid_sampler_2d,
    grid_sampler_3d, affine_grid_generator, native_channel_shuffle,
    max_pool1d_with_indices, norm_except_dim, convolution, conv_tbc, segment_reduce,
    native_layer_norm, native_group_norm, native_batch_norm, native_dropout,
)  # fmt: skip
