"""The arguments that a call of a function is recorded with: those that PyTorch's own pass on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import lucid_gpu
from lucid_gpu.nn import functional

__all__ = ["recorded"]

# Of `nn.functional`: PyTorch's C++ functions, which pass on what they are called with. Its Python
# functions pass on every argument, those with defaults by name.
_AS_CALLED = """
    adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d
    conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity elu_
    gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid native_channel_shuffle one_hot
    pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_
    scaled_dot_product_attention selu_ softplus softshrink threshold_"""
# Of `lucid_gpu` itself: those that are Python functions in PyTorch.
_IN_FULL = {"cdist", "meshgrid", "norm", "stft", "tensordot", "unique", "unique_consecutive"}


@functools.cache
def _in_full(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function that passes on every argument."""
    name = function.__name__
    own = name in _IN_FULL and getattr(lucid_gpu, name, None) is function
    python = name not in _AS_CALLED.split() and getattr(functional, name, None) is function
    return inspect.signature(function) if own or python else None


def recorded(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the node of a call.

    Raises
    ------
    TypeError
        Where the function does not take these.
    """
    if function is lucid_gpu.einsum and len(args) == 2 and isinstance(args[1], (list, tuple)):
        return (args[0], *args[1]), kwargs
    if function is lucid_gpu.split:
        return _of_split(*args, **kwargs)
    signature = _in_full(function)
    if signature is None:
        return args, kwargs
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in given.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return tuple(positional), named


def _of_split(
    tensor: Any, split_size_or_sections: Any, dim: Any = 0
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `split`, whose own signature has the method's name for the size too."""
    return (tensor, split_size_or_sections), {"dim": dim}
