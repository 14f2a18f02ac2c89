"""`torch.ops.aten`'s gradients, which layers that keep less than autograd call in their backward.

Each computes its op once more and differentiates it, so that it has derivatives itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lucid_gpu import Tensor, autograd, convolution, enable_grad, is_grad_enabled
from lucid_gpu.nn import functional as F

__all__ = ["BACKWARD", "FORWARD"]

FORWARD = {
    name: getattr(F, name)
    for name in ("gelu", "hardswish", "leaky_relu", "max_pool2d_with_indices", "mish", "silu")
}
BACKWARD: dict[str, Callable[..., Any]] = {}


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    BACKWARD[function.__name__] = function
    return function


def _differentiated(
    forward: Callable[..., Tensor], inputs: Sequence[Any], grad: Tensor, mask: Sequence[bool]
) -> tuple[Any, ...]:
    """The gradients of ``forward(*inputs)`` by those inputs that ``mask`` asks for, else None."""
    recording = is_grad_enabled()
    with enable_grad():
        xs = [
            x if x is None or x.requires_grad or not asked else x.detach().requires_grad_()
            for x, asked in zip(inputs, mask, strict=True)
        ]
        wanted = [x for x, asked in zip(xs, mask, strict=True) if asked and x is not None]
        if not wanted:
            return (None,) * len(xs)
        further = recording and any(
            isinstance(x, Tensor) and x.requires_grad for x in (*inputs, grad)
        )
        found = iter(autograd.grad(forward(*xs), wanted, grad, create_graph=further))
    return tuple([next(found) if m and x is not None else None for x, m in zip(xs, mask)])


def _of_one(
    forward: Callable[..., Tensor], grad_output: Tensor, self: Tensor, *args: Any, **kw: Any
) -> Tensor:
    return _differentiated(lambda x: forward(x, *args, **kw), [self], grad_output, [True])[0]


for _name in (
    "gelu",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "mish",
    "silu",
    "softplus",
    "glu",
    "logit",
):
    BACKWARD[f"{_name}_backward"] = partial(
        _of_one, getattr(F, _name, None) or getattr(Tensor, _name)
    )


@_named
def leaky_relu_backward(
    grad_output: Tensor, self: Tensor, negative_slope: float, self_is_result: bool
) -> Tensor:
    """Return the gradient of `leaky_relu` by ``self``, which may be its result."""
    return _of_one(F.leaky_relu, grad_output, self, negative_slope)


@_named
def threshold_backward(grad_output: Tensor, self: Tensor, threshold: Any) -> Tensor:
    """Return ``grad_output`` where ``self`` is above ``threshold``, else 0."""
    return grad_output * (self > threshold)


@_named
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of `sigmoid`, whose result is ``output``."""
    return grad_output * (output * (1 - output)).conj()


@_named
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of `tanh`, whose result is ``output``."""
    return grad_output * (1 - output * output).conj()


@_named
def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any = None
) -> Tensor:
    """Return the gradient of `softmax` along ``dim``, whose result is ``output``."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype or output.dtype)


@_named
def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any = None
) -> Tensor:
    """Return the gradient of `log_softmax` along ``dim``, whose result is ``output``."""
    total = grad_output.sum(dim, keepdim=True)
    return (grad_output - output.exp() * total).to(input_dtype or output.dtype)


@_named
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:
    """Return the gradients of `convolution` by input, weight and bias; None where not asked for."""
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    by_input, by_weight = _differentiated(
        lambda x, w: convolution(x, w, None, *settings),
        [input, weight],
        grad_output,
        output_mask[:2],
    )
    return by_input, by_weight, _by_bias(grad_output) if output_mask[2] else None


def _by_bias(gradient: Tensor) -> Tensor:
    """Return ``gradient`` summed over all dimensions but that of the channels."""
    return gradient.sum([d for d in range(gradient.ndim) if d != 1])


@_named
def native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:
    """Return the gradients of a batch norm by input, weight and bias; None where not asked for."""
    means = (None, None) if train else (running_mean, running_var)
    by_input, by_weight = _differentiated(
        lambda x, w: F.batch_norm(x, *means, w, None, train, 0.0, eps),
        [input, weight],
        grad_out,
        output_mask[:2],
    )
    return by_input, by_weight, _by_bias(grad_out) if output_mask[2] else None


@_named
def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    """Return the gradients of a layer norm by input, weight and bias; None where not asked for.

    The statistics are those saved: the constant that was added to the variance is in ``rstd``.
    """
    others = list(range(input.ndim - len(normalized_shape)))
    own = list(range(len(others), input.ndim))
    normal = (input - mean) * rstd
    g = grad_out if weight is None else grad_out * weight
    inner = g - g.mean(own, keepdim=True) - normal * (g * normal).mean(own, keepdim=True)
    found = [
        lambda: rstd * inner,
        lambda: (grad_out * normal).sum(others) if others else grad_out * normal,
        lambda: grad_out.sum(others) if others else grad_out,
    ]
    there = (True, weight is not None, bias is not None)
    return tuple([f() if m and t else None for f, m, t in zip(found, output_mask, there)])


@_named
def native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    """Return the gradients of a group norm by input, weight and bias; None where not asked for."""
    shape, channels = (N, group, C // group, HxW), (1, group, C // group, 1)
    normal = (input.reshape(shape) - mean.reshape(N, group, 1, 1)) * rstd.reshape(N, group, 1, 1)
    g = grad_out.reshape(shape)
    h = g if weight is None else g * weight.reshape(channels)
    inner = h - h.mean([2, 3], True) - normal * (h * normal).mean([2, 3], True)
    found = [
        lambda: (rstd.reshape(N, group, 1, 1) * inner).reshape(input.shape),
        lambda: (g * normal).sum([0, 3]).reshape(C),
        lambda: g.sum([0, 3]).reshape(C),
    ]
    there = (True, weight is not None, True)
    return tuple([f() if m and t else None for f, m, t in zip(found, output_mask, there)])


@_named
def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Return the gradient of `max_pool2d` by ``self``: the sums of what goes to each place."""
    flat = self.new_zeros((*self.shape[:-2], self.shape[-2] * self.shape[-1]))
    places, values = indices.flatten(-2), grad_output.flatten(-2)
    return flat.scatter_add(-1, places, values).reshape(self.shape)


@_named
def avg_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Return the gradient of `avg_pool2d` by ``self``."""
    settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _of_one(F.avg_pool2d, grad_output, self, *settings)


@_named
def _adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of `adaptive_avg_pool2d` by ``self``."""
    return _of_one(F.adaptive_avg_pool2d, grad_output, self, tuple(grad_output.shape[-2:]))


@_named
def embedding_dense_backward(
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    """Return the gradient of `embedding` by a table of ``num_weights`` rows."""
    table = grad_output.new_zeros(num_weights, grad_output.shape[-1])
    padding = padding_idx if padding_idx >= 0 else None
    return _differentiated(
        lambda w: F.embedding(indices, w, padding, scale_grad_by_freq=scale_grad_by_freq),
        [table],
        grad_output,
        [True],
    )[0]


@_named
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return the gradient of a dropout that kept what ``mask`` says, times ``scale``."""
    return grad_output * mask * scale
