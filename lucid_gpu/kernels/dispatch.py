"""Which half of a family runs: its CUDA C, or its one way on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from lucid_gpu.devices import backend, backend_of_array, device_of, owners
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.launch import Executor

__all__ = ["by_device"]

P = ParamSpec("P")
R = TypeVar("R")


class by_device(Generic[P, R]):
    """A function of a family: what it decorates launches CUDA C, `on_host` names the other half.

    The first argument decides: an array, or a sequence that begins with one. Its GPU is the current
    one while CUDA C is launched, so that `Backend.new` gives memory there.

    Examples
    --------
    >>> @by_device
    ... def doubled(x):
    ...     "Twice an array."
    ...     y = empty(x, x.shape)
    ...     double_kernel(-(-x.size // 256), (x, y, x.size), T=from_numpy_dtype(x.dtype))
    ...     return y
    >>> @doubled.on_host
    ... def _doubled(x):
    ...     return 2 * x
    """

    def __init__(self, cuda_c: Callable[P, R]) -> None:
        self.cuda_c = cuda_c
        self.host: Callable[P, R] | None = None
        self.meta: Callable[P, R] | None = None
        functools.update_wrapper(self, cuda_c)

    def on_host(self, function: Callable[P, R]) -> Callable[P, R]:
        """Declare what runs where CUDA C does not."""
        self.host = function
        return function

    def on_meta(self, function: Callable[P, R]) -> Callable[P, R]:
        """Declare what gives arrays of the results' shapes on the device meta."""
        self.meta = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        owner = owners[kind] if (kind := type(first)) in owners else None
        if owner is None:  # a sequence, or the first of its kind
            if isinstance(first, (list, tuple)):
                first = first[0]
            owner = backend_of_array(first) or backend(device_of(first))
        if owner.type != "cpu":
            if owner.type == "meta":
                if self.meta is None:
                    from lucid_gpu.devices.meta_backend import no_rule

                    raise no_rule(self.cuda_c.__name__)
                return self.meta(*args, **kwargs)
            index = first.data.device_id
            if owner.is_current(index):
                return self.cuda_c(*args, **kwargs)
            with on_gpu(owner.xp.cuda, index):
                return self.cuda_c(*args, **kwargs)
        if Executor.host_cuda:
            return self.cuda_c(*args, **kwargs)
        assert self.host is not None
        if owner.records:
            named: Any = functools.partial(_by_name, self.host, tuple(kwargs), len(args))
            result: R = owner.call(self.cuda_c.__name__, named, *args, *kwargs.values())
            return result
        return self.host(*args, **kwargs)


def _by_name(function: Any, names: tuple[str, ...], count: int, *args: Any) -> Any:
    return function(*args[:count], **dict(zip(names, args[count:], strict=True)))
