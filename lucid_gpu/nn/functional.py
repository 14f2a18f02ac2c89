"""Neural network functions without state, under PyTorch's names.

The functions themselves are in `lucid_gpu.ops`; here they get PyTorch's arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lucid_gpu.compat.module_names import beside as _beside
from lucid_gpu.devices import backend as _backend
from lucid_gpu.dtypes import int64
from lucid_gpu.nn.linear_cross_entropy import linear_cross_entropy
from lucid_gpu.nn.multi_head_attention import multi_head_attention_forward
from lucid_gpu.ops import activations, elementwise, record, user_warnings
from lucid_gpu.ops import cross_entropy as ops
from lucid_gpu.ops import softmax as softmaxes
from lucid_gpu.ops.activations import glu, gumbel_softmax, hardshrink, prelu, softshrink
from lucid_gpu.ops.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from lucid_gpu.ops.arguments import guarded, public, refusal_of, require_tensor, require_tensors
from lucid_gpu.ops.attention import scaled_dot_product_attention
from lucid_gpu.ops.batch_norm import batch_norm
from lucid_gpu.ops.convolution import conv1d, conv2d, conv3d
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.ctc import ctc_loss
from lucid_gpu.ops.distances import bilinear, pdist
from lucid_gpu.ops.dropout import dropout
from lucid_gpu.ops.elementwise import gelu, logsigmoid, softplus, softsign, tanhshrink
from lucid_gpu.ops.embedding import embedding
from lucid_gpu.ops.embedding_bag import embedding_bag
from lucid_gpu.ops.feature_dropout import (
    alpha_dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from lucid_gpu.ops.fractional_pooling import fractional_max_pool2d, fractional_max_pool3d
from lucid_gpu.ops.grid_sample import affine_grid, grid_sample
from lucid_gpu.ops.group_norm import (
    group_norm,
    instance_norm,
    local_response_norm,
    normalize,
)
from lucid_gpu.ops.in_place import alias_before
from lucid_gpu.ops.interpolate import interpolate, upsample, upsample_bilinear, upsample_nearest
from lucid_gpu.ops.layer_norm import layer_norm, rms_norm
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    reduction_of,
    smooth_l1_loss,
)
from lucid_gpu.ops.margin_losses import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    pairwise_distance,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from lucid_gpu.ops.matmul import linear
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from lucid_gpu.ops.registry import findable
from lucid_gpu.ops.shuffles import channel_shuffle, pixel_shuffle, pixel_unshuffle
from lucid_gpu.ops.transposed_convolution import (
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from lucid_gpu.ops.unpooling import (
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from lucid_gpu.ops.windows import fold, unfold
from lucid_gpu.tape import door
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.overrides import (
    UNHANDLED,
    changed,
    handled,
    handled_after,
    handling,
    overridable,
)
from lucid_gpu.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

# -- activations -------------------------------------------------------------------------------


def _activation(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function with PyTorch's last argument, ``inplace``."""
    signature = inspect.signature(function)
    settings = len(signature.parameters) - 1

    @functools.wraps(function)
    def activation(input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if handling:
            shown = {**kwargs, **changed(inplace=(inplace, False))}
            if (answer := handled(activation, (input, *args), shown)) is not UNHANDLED:
                return answer
        if len(args) > settings:
            *args, inplace = args  # type: ignore[assignment]
        name = f"{activation.__name__}_"
        try:
            result = function(alias_before(input, name) if inplace else input, *args, **kwargs)
        except (AttributeError, TypeError) as error:
            shown = {**kwargs, **changed(inplace=(inplace, False))}
            if (answer := handled_after(activation, (input, *args), shown)) is not UNHANDLED:
                return answer
            if isinstance(error, TypeError):
                raise
            raise refusal_of(function, error, (input,)) from None
        return _held(input, result, name) if inplace else result

    activation.__name__ = activation.__qualname__ = function.__name__.lstrip("_")
    parameters = [*signature.parameters.values(), _INPLACE]
    activation.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    activation.__doc__ = _saying(function, "With ``inplace`` the result is written into ``input``.")
    return activation


def _held(input: Tensor, result: Tensor, name: str) -> Tensor:
    """An input that has been given a result, which some of PyTorch's ops save then."""
    if name in _SAVED_IN_PLACE:
        record.keeps(result, output=True)
    return input._write(result, name)


_SAVED_IN_PLACE = ("leaky_relu_", "elu_", "selu_", "celu_", "rrelu_")
_INPLACE = inspect.Parameter(
    "inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool"
)


def _saying(function: Callable[..., Tensor], sentence: str) -> str:
    """A function's docstring with one more paragraph behind its first."""
    summary, *more = inspect.cleandoc(function.__doc__ or "").split("\n\n", 1)
    return "\n\n".join([summary, sentence, *more])


def _relu(input: Tensor) -> Tensor:
    """``max(x, 0)``; elementwise."""
    return input.relu()


_relu.__qualname__ = "relu"  # which Python's errors name
relu = _activation(_relu)
relu6 = _activation(elementwise.relu6)
leaky_relu = _activation(elementwise.leaky_relu)
elu = _activation(elementwise.elu)
selu = _activation(elementwise.selu)
celu = _activation(elementwise.celu)
silu = _activation(elementwise.silu)
mish = _activation(elementwise.mish)
hardtanh = _activation(elementwise.hardtanh)
hardsigmoid = _activation(elementwise.hardsigmoid)
hardswish = _activation(elementwise.hardswish)
threshold = _activation(activations.threshold)
rrelu = _activation(activations.rrelu)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The twin that writes its result into its input."""

    @functools.wraps(function)
    def twin(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        require_tensor(twin.__name__, "input", 1, input)
        value = function(alias_before(input, twin.__name__), *args, **kwargs)
        return _held(input, value, twin.__name__)

    twin.__name__ = twin.__qualname__ = f"{function.__name__.lstrip('_')}_"
    twin.__doc__ = _saying(function, "The result is written into ``input``.")
    return overridable(twin)


relu_ = _in_place(_relu)
leaky_relu_ = _in_place(elementwise.leaky_relu)
elu_ = _in_place(elementwise.elu)
selu_ = _in_place(elementwise.selu)
celu_ = _in_place(elementwise.celu)
hardtanh_ = _in_place(elementwise.hardtanh)
threshold_ = _in_place(activations.threshold)
rrelu_ = _in_place(activations.rrelu)


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``; elementwise."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent, elementwise."""
    return input.tanh()


def _no_dim(name: str) -> None:
    user_warnings.warn_user(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
    )


_softmax, _log_softmax = map(door.body_of, (softmaxes.softmax, softmaxes.log_softmax))


@door.op(autocast={"cuda": "float32"})
def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension.

    Parameters
    ----------
    input : Tensor
    dim : int
        None, with a warning, is the first of 0, 1 or 3 dimensions, else the second.
    dtype : dtype, optional
        What the input is cast to first.

    Returns
    -------
    Tensor, of input's shape
    """
    if dim is None:
        _no_dim("softmax")
    known = type(dim) is int and not door.interpreters
    return (_softmax if known else softmaxes.softmax)(input, dim, dtype)


@door.op(autocast={"cuda": "float32"})
def log_softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without overflow; arguments and shape are the same."""
    if dim is None:
        _no_dim("log_softmax")
    known = type(dim) is int and not door.interpreters
    return (_log_softmax if known else softmaxes.log_softmax)(input, dim, dtype)


@door.op(autocast={"cuda": "float32"})
def softmin(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`softmax` of ``-x``; arguments and shape are the same."""
    if dim is None:
        _no_dim("softmin")
    return softmaxes.softmax(-input, dim, dtype)


gelu, softplus, logsigmoid = public(gelu), public(softplus), public(logsigmoid)  # with out=
hardshrink, softshrink = public(hardshrink), public(softshrink)
avg_pool2d, avg_pool3d = public(avg_pool2d), public(avg_pool3d)

# -- layers ------------------------------------------------------------------------------------


@guarded
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at each number's place along a new last dimension, 0 elsewhere; int64.

    Parameters
    ----------
    tensor : Tensor of int64, shape (*)
    num_classes : int
        One more than the largest number by default.

    Returns
    -------
    Tensor of int64, shape (*, num_classes)

    Raises
    ------
    RuntimeError
        For a number that is negative or no class; a GPU is not waited for where ``num_classes`` is
        given, and such a row is zeros.
    """
    if not isinstance(tensor, Tensor):
        require_tensor("one_hot", "tensor", 1, tensor)
    program = tensor._expr.program
    where, empty = program.device, 0 in tensor._expr.shape
    if program.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes <= 0 and empty:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    if not empty and where.type == "cpu" and not open_levels:
        array, xp = tensor.array, _backend(where).xp
        least, most = xp.minimum.reduce(array, None), xp.maximum.reduce(array, None)
        _check_classes(int(least), int(most), num_classes)
    classes = arange(num_classes, dtype=int64, device=where)
    return lay(elementwise.cast(tensor.unsqueeze(-1) == classes, int64), None)


def _check_classes(least: int, most: int, classes: int) -> None:
    if least < 0:
        raise RuntimeError("Class values must be non-negative.")
    if most >= classes:
        raise RuntimeError(
            f"Class values must be smaller than num_classes. Got {most} of {classes} classes"
        )


# -- losses ------------------------------------------------------------------------------------


@door.op(autocast="float32")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What `lucid_gpu.ops.cross_entropy.nll_loss` says."""
    require_tensors("nll_loss", input=input, target=target)
    reduction = reduction_of(size_average, reduce, reduction)
    return ops.nll_loss(input, target, weight, ignore_index, reduction)


@door.op(autocast="float32")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """What `lucid_gpu.ops.cross_entropy.cross_entropy` says."""
    reduction = reduction_of(size_average, reduce, reduction)
    loss = ops.cross_entropy if door.interpreters else _cross_entropy
    return loss(input, target, weight, ignore_index, reduction, label_smoothing)


_cross_entropy = door.body_of(ops.cross_entropy)


_OLDER = "size_average, reduce : bool, optional\n    Deprecated; use ``reduction``.\n"
for _loss, _documented in ((nll_loss, ops.nll_loss), (cross_entropy, ops.cross_entropy)):
    _doc = inspect.cleandoc(_documented.__doc__ or "")
    _loss.__doc__ = _doc.replace("\nreduction :", f"\n{_OLDER}reduction :", 1)

findable(dict(globals()), __name__)

# What PyTorch's own functions are made of
_LATE = {
    "lucid_gpu.nn": "grad",
    "lucid_gpu.ops.native_functions": "conv_tbc",
    "lucid_gpu.overrides": "handle_torch_function has_torch_function has_torch_function_unary "
    "has_torch_function_variadic",
    "lucid_gpu._nn_functional": "_Reduction _canonical_mask _get_softmax_dim _in_projection "
    "_in_projection_packed _none_or_dtype _verify_batch_size max_pool1d_with_indices "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices "
    "adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
}
__getattr__ = _beside(globals(), _LATE)


def __dir__() -> list[str]:
    """Also what is imported when it is first asked for."""
    return sorted({*globals(), *" ".join(_LATE.values()).split()})
