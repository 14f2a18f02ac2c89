"""Copies and pickles of tensors: what `copy` and `pickle` call."""

from __future__ import annotations

import copy
import math
from pickle import PickleBuffer
from typing import Any

import numpy as np

from lucid_gpu.core import value
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import as_laid
from lucid_gpu.dtypes import dtype
from lucid_gpu.tape.overrides import fields, user_attributes
from lucid_gpu.tensor import Tensor, as_kind, from_array

__all__ = ["METHODS", "like"]


def __copy__(self: Tensor) -> Tensor:
    """Another leaf on the same memory, with the same attributes."""
    same = self.detach()
    return same if self._wrapper is not None else like(self, same)


def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf on a copy of the memory; tensors copied in one call share what they shared before.

    RuntimeError for tensors that are not leaves.
    """
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Use x.detach().clone() for others."
        )
    storage = self._storage
    alone = storage is None or self._is_sparse or (self._base is None and not storage.others(self))
    other = like(self, self.detach().clone() if alone else self._copied_with_memory(memo))
    memo[id(self)] = other
    if self.grad is not None:
        other.grad = copy.deepcopy(self.grad, memo)
    return other


def like(original: Tensor, value: Tensor) -> Tensor:
    """A leaf on the memory of ``value``: its class, attributes and mark are those of another."""
    other = as_kind(type(original), value)
    fields(other).update(user_attributes(fields(original)))
    return other._mark() if original.requires_grad else other


def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    """The elements as bytes in the order of memory, and what says how they lie."""
    array = self.detach().array
    order = value.order_of(self._load())
    data: Any = None
    if self.device.type != "meta":
        array = backend(self.device).to_numpy(array)
        lying = array if order is None else array.transpose(order)
        data = np.ascontiguousarray(lying).reshape(-1).view(np.uint8)
        data = PickleBuffer(data) if protocol >= 5 else data.tobytes()
    shape, where = tuple(self.shape), str(self.device)
    made_of = type(self), data, self.dtype, shape, where, self.requires_grad, order
    return _rebuild, made_of, user_attributes(fields(self)) or None


def _rebuild(
    kind: type[Tensor],
    data: Any,
    d: dtype,
    shape: tuple[int, ...],
    where: str,
    requires_grad: bool,
    order: tuple[int, ...] | None,
) -> Tensor:
    there = CPU
    if data is None:  # of a tensor without elements
        there = device(where)
        row = backend(there).empty((math.prod(shape),), d, there)
    else:
        row = np.frombuffer(data if not memoryview(data).readonly else bytearray(data), d.numpy)
    tensor = from_array(as_laid(row, shape, order), d, there)._keep_order()
    if where != str(there):
        tensor = tensor.to(where)
    return as_kind(kind, tensor)._mark(requires_grad)


METHODS = (__copy__, __deepcopy__, __reduce_ex__)
