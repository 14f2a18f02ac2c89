"""Initial values: each function writes a tensor in place, outside autograd, and returns it."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from lucid_gpu.ops.creation import eye as identity
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.overrides import overridable
from lucid_gpu.tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_GAINS: dict[str, float] = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a signal's variance through a nonlinearity.

    Parameters
    ----------
    nonlinearity : str
        A name such as ``"relu"``, ``"tanh"`` or ``"leaky_relu"``.
    param : float, optional
        The negative slope of ``"leaky_relu"``, 0.01 by default.

    Raises
    ------
    ValueError
        For another name, and a slope that is not a number.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


@overridable
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Elements uniform in ``[a, b)``."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


@overridable
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Elements normal, of mean ``mean`` and standard deviation ``std``."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


@overridable
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value for all elements."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """One for all elements."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zero for all elements."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix, also where it is not square; ValueError for other than 2 dimensions."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        return tensor.copy_(identity(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs one element of a weight ``(out, in, *window)`` connects."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """One of the two by its name, "fan_in" or "fan_out"."""
    fans = dict(zip(("fan_in", "fan_out"), _calculate_fan_in_and_fan_out(tensor), strict=True))
    if mode.lower() not in fans:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(fans)}")
    return fans[mode.lower()]


def _spread_uniform(tensor: Tensor, std: float, generator: Any) -> Tensor:
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def _spread_normal(tensor: Tensor, std: float, generator: Any) -> Tensor:
    return normal_(tensor, 0.0, std, generator)


def _xavier(tensor: Tensor, gain: float, spread: Callable[..., Tensor], generator: Any) -> Tensor:
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return spread(tensor, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers of variance ``gain^2 * 2 / (fan_in + fan_out)``.

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks"
    (2010). ``fan_in`` and ``fan_out`` are the inputs and outputs that an element of a weight of
    shape (out, in, *window) connects.

    Raises
    ------
    ValueError
        For fewer than 2 dimensions.
    """
    return _xavier(tensor, gain, _spread_uniform, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers of variance ``gain^2 * 2 / (fan_in + fan_out)``, for shape (out, in, *window).

    All else is as in `xavier_uniform_`.
    """
    return _xavier(tensor, gain, _spread_normal, generator)


def _kaiming(
    tensor: Tensor,
    a: float,
    mode: str,
    nonlinearity: str,
    spread: Callable[..., Tensor],
    generator: Any,
) -> Tensor:
    if 0 in tensor.shape:
        warn_user("Initializing zero-element tensors is a no-op")
        return tensor
    fan = _calculate_correct_fan(tensor, mode)
    gain = calculate_gain(nonlinearity, a)
    return spread(tensor, gain / math.sqrt(fan or 1), generator)


@overridable
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform numbers of variance ``gain^2 / fan``.

    He et al., "Delving Deep into Rectifiers" (2015).

    Parameters
    ----------
    tensor : Tensor, shape (out, in, *window)
    a : float
        The negative slope, for ``"leaky_relu"``.
    mode : {"fan_in", "fan_out"}
        Whether the forward or the backward signal keeps its variance.
    nonlinearity : str
        See `calculate_gain`.
    generator : Generator, optional

    Raises
    ------
    ValueError
        For fewer than 2 dimensions, another mode or nonlinearity.
    """
    return _kaiming(tensor, a, mode, nonlinearity, _spread_uniform, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal numbers of variance ``gain^2 / fan``, for shape (out, in, *window).

    Arguments are those of `kaiming_uniform_`; ValueError is raised as there.
    """
    return _kaiming(tensor, a, mode, nonlinearity, _spread_normal, generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal numbers cut off at ``a`` and ``b``, for all elements.

    The inverse of the distribution function at uniform numbers.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )
    low, high = (math.erf((end - mean) / std / math.sqrt(2)) for end in (a, b))
    with no_grad():
        tensor.uniform_(low, high, generator=generator)
        drawn: Tensor = tensor.erfinv() * (std * math.sqrt(2)) + mean
        return tensor.copy_(drawn.clamp(a, b))


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A matrix with orthonormal rows or columns, whichever are fewer, times ``gain``.

    Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks" (2013). Further dimensions count as columns; ValueError for fewer than 2.
    """
    from lucid_gpu.ops.linalg.qr import qr

    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    with no_grad():
        columns = tensor.numel() // rows
        drawn = tensor.detach().new_empty(rows, columns).normal_(0, 1, generator=generator)
        q, r = qr(drawn.T if rows < columns else drawn)
        q = q * r.diagonal().sign()  # uniform over orthogonal matrices (Mezzadri, 2006)
        q = q.T if rows < columns else q
        return tensor.copy_((q * gain).reshape(tuple(tensor.shape)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal numbers, a share ``sparsity`` of each column of a matrix zero.

    Martens, "Deep learning via Hessian-free optimization" (2010).

    Raises
    ------
    ValueError
        For other than 2 dimensions.
    """
    from lucid_gpu.ops.random import rand

    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        rank = rand(rows, columns, device=tensor.device, generator=generator).argsort(0).argsort(0)
        return tensor.mul_((rank >= zeros).to(tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Kernels of a convolution that passes its channels on, in each of its groups.

    Parameters
    ----------
    tensor : Tensor, shape (out, in, *window), of 3 to 5 dimensions
    groups : int

    Raises
    ------
    ValueError
        For another shape, and groups that do not divide ``out``.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    outputs, inputs, *window = tensor.shape
    if outputs % groups:
        raise ValueError("dim 0 must be divisible by groups")
    each = outputs // groups
    middle = tuple([n // 2 for n in window])
    with no_grad():
        tensor.zero_()
        for start in range(0, outputs, each):
            for channel in range(min(each, inputs)):
                index = start + channel, channel, *middle
                tensor[index] = 1
    return tensor


def _old(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function under the name it had before it said that it writes in place."""
    name = function.__name__.removesuffix("_")

    @functools.wraps(function)
    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    old.__name__ = old.__qualname__ = name
    old.__doc__ = f"The older name of `{name}_`, with PyTorch's warning."
    return old


_renamed = [
    _old(function)
    for function in (
        *(uniform_, normal_, constant_, eye_, xavier_uniform_, xavier_normal_),
        *(kaiming_uniform_, kaiming_normal_, dirac_, orthogonal_, sparse_),
    )
]
uniform, normal, constant, eye, xavier_uniform, xavier_normal, *_rest = _renamed
kaiming_uniform, kaiming_normal, dirac, orthogonal, sparse = _rest

# The names that packages import, as if they were something else
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
