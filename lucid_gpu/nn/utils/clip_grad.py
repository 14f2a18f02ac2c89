"""Gradients clipped by their common norm, or by value.

All gradients are one kernel, or as many as the table of tensors in its arguments has to be filled;
on a GPU no number comes back to the host.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices.copies import row_major
from lucid_gpu.kernels.multi_tensor import clip_to_norm, total_norm
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.foreach import update_in_place, write_together
from lucid_gpu.ops.shape import stack
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]

Tensors = Tensor | Iterable[Tensor]


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients, in place, so that the norm of all of them together is at most ``max_norm``.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Those without a gradient are left out.
    max_norm, norm_type : float
        The order of the norm may be infinite.
    error_if_nonfinite : bool
        Raise where the norm is infinite or NaN, which on a GPU waits for it.
    foreach : bool, optional
        Accepted for compatibility; all gradients are one kernel.

    Returns
    -------
    Tensor without dimensions
        The norm before.

    Raises
    ------
    RuntimeError
        For a norm that is not finite, if asked to. The gradients are as they were.
    """
    grads = _gradients(parameters)
    if not grads:
        return tensor(0.0)
    total = _norm_of_all(grads, float(norm_type))
    if error_if_nonfinite:
        _require_finite(total, float(norm_type))
    _clip(grads, max_norm, total)
    return total.to(_type_of(grads))


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The older name of `clip_grad_norm_`, with PyTorch's warning."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients, in place, by ``max_norm / (total_norm + 1e-6)`` where that is below 1.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
    max_norm : float
    total_norm : Tensor without dimensions
        The result of `get_total_norm`.
    foreach : bool, optional
        Accepted for compatibility.
    """
    _clip(_gradients(parameters), max_norm, total_norm)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients, in place, to ``[-clip_value, clip_value]``.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
    clip_value : float
    foreach : bool, optional
        Accepted for compatibility; all gradients are one kernel.
    """
    with no_grad():
        limit = float(clip_value)
        update_in_place(_clamped, [(g,) for g in _gradients(parameters)], 1, low=-limit, high=limit)


def _clamped(g: Tensor, *, low: float, high: float) -> tuple[Tensor, ...]:
    return (g.clamp(low, high),)


def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of the norms of tensors: of all their elements, as if they were one vector.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
    norm_type : float
        Its order, which may be infinite. 0 counts the tensors that are not zero.
        Rows that ranks share, as gradients after `distributed.fsdp.fully_shard`, are counted on all
        of them: all ranks call it then.
    error_if_nonfinite : bool
    foreach : bool, optional
        Accepted for compatibility; all tensors are one kernel.

    Returns
    -------
    Tensor without dimensions
        On the device of the first tensor.

    Raises
    ------
    RuntimeError
        For a norm that is not finite, if asked to.
    """
    tensor_list = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    order = float(norm_type)
    if not tensor_list:
        return tensor(0.0)
    total = _norm_of_all(tensor_list, order).to(_type_of(tensor_list))
    if error_if_nonfinite:
        _require_finite(total, order)
    return total


def _require_finite(total: Tensor, order: float) -> None:
    if not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite "
            "norm anyway, set `error_if_nonfinite=False`"
        )


def _type_of(tensors: list[Tensor]) -> dt.dtype:
    types = dict.fromkeys([t.dtype for t in tensors])
    return functools.reduce(dt.promote_types, [d.to_real() for d in types])


@no_grad()
def _norm_of_all(tensors: list[Tensor], order: float) -> Tensor:
    """The norm, in which rows of a `distributed.tensor.DTensor` count with those of other ranks.

    That of 16-bit floats, which may be out of their range, is in float32.
    """
    rows = [t for t in tensors if hasattr(t, "sharding")]
    if not rows:
        return _norm(tensors, order)
    from lucid_gpu.distributed.tensor import norm_of_rows

    norms = norm_of_rows(rows, order, _norm)
    whole = [t for t in tensors if not hasattr(t, "sharding")]
    if whole:
        norms.append(_norm(whole, order).to(norms[0]))
    return norms[0] if len(norms) == 1 else stack(norms).norm(order)


def _norm(tensors: list[Tensor], order: float) -> Tensor:
    first = tensors[0].device
    if order == 0:  # not the norm of one vector: PyTorch counts tensors
        return stack([t.norm(0).to(first) for t in tensors]).norm(0)
    groups = _by_device(tensors)
    norms = [_norm_on(where, some, order).to(first) for where, some in groups.items()]
    return norms[0] if len(norms) == 1 else stack(norms).norm(order)


def _by_device(tensors: list[Tensor]) -> dict[device, list[Tensor]]:
    groups: dict[device, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault(t.device, []).append(t)
    return groups


def _norm_on(where: device, tensors: list[Tensor], order: float) -> Tensor:
    """The norm of tensors of one device; complex ones count by their magnitudes."""
    for t in tensors:
        d = t._expr.program.dtype
        if d.category < 2 or t._is_sparse:
            kind = "a sparse tensor" if t._is_sparse else d.name
            raise RuntimeError(
                f"get_total_norm(): expected dense floating point tensors, got {kind}"
            )
    sizes = [t if t._expr.program.dtype.category == 2 else t.abs() for t in tensors]
    to = _type_of(sizes).compute
    array = total_norm([row_major(t.array) for t in sizes], order, to, where)
    return from_array(array, to, where)


def _clip(grads: list[Tensor], max_norm: float, norm: Tensor) -> None:
    limit = float(max_norm)
    for where, some in _by_device(grads).items():
        clip = functools.partial(_clip_arrays, norm.to(where).array, limit, where)
        write_together(some, "clip_grad_norm_", where, clip)


def _clip_arrays(norm: Any, limit: float, where: device, arrays: list[Any]) -> None:
    parts = [a.view(a.real.dtype) if a.dtype.kind == "c" else a for a in arrays]
    clip_to_norm(parts, norm, limit, where)


def _gradients(parameters: Tensors) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    parameter_list = list(parameters)
    if not parameter_list and isinstance(parameters, types.GeneratorType):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3
        )
    return [p.grad for p in parameter_list if p.grad is not None]
