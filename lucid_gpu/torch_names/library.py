"""`torch.library`: functions of a user's under a name, with a gradient where one is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from lucid_gpu.autograd import Function
from lucid_gpu.tensor import Tensor

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "impl",
    "impl_abstract",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
]

_BY_NAME: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """A function of a user's, called under its own name.

    Attributes
    ----------
    name : str
        ``"namespace::name"``.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._qualname = name
        self._functions: dict[str | None, Callable[..., Any]] = {None: function}
        self._recorded: type[Function] | None = None
        self.__doc__ = function.__doc__
        self.__name__ = name.rpartition("::")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function for the device of the first tensor, and record its gradient."""
        if self._recorded is None:
            return self._run(*args, **kwargs)
        return self._recorded.apply(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        for a in (*args, *kwargs.values()):
            if isinstance(a, Tensor):
                return self._functions.get(a.device.type, self._functions[None])(*args, **kwargs)
        return self._functions[None](*args, **kwargs)

    def register_kernel(self, device_types: Any, func: Any = None) -> Any:
        """Use another function for tensors on these kinds of device."""
        if func is None:
            return lambda func: self.register_kernel(device_types, func)
        kinds = (device_types,) if isinstance(device_types, str) else device_types
        for kind in kinds or (None,):
            self._functions[kind] = func
        return func

    def register_fake(self, fn: Any) -> Any:
        """Take the function that computes shapes alone, which nothing asks for."""
        return fn

    register_abstract = register_fake

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Let gradients go through ``backward(ctx, *grads)``.

        Parameters
        ----------
        setup_context : callable, optional
            ``setup_context(ctx, inputs, output)`` saves what backward needs.
        """

        def nothing(ctx: Any, inputs: Any, output: Any) -> None:
            """Save nothing."""

        methods = {
            "forward": staticmethod(self._run),
            "setup_context": staticmethod(setup_context or nothing),
            "backward": staticmethod(backward),
        }
        self._recorded = type(self.__name__, (Function,), methods)

    def register_vmap(self, func: Any = None) -> NoReturn:
        """Refuse with a NotImplementedError that names what to write instead."""
        raise NotImplementedError(
            "CustomOpDef.register_vmap: write an autograd.Function with a vmap staticmethod"
        )


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """A function under a name, to which a gradient can be registered; without one, a decorator.

    Parameters
    ----------
    name : str
        ``"namespace::name"``.
    mutates_args, device_types, schema, tags
        Taken as PyTorch takes them; nothing here asks for them.
    """
    if "::" not in name:
        raise ValueError(f"custom_op: expected a name of the form 'namespace::name', got {name!r}")
    if fn is None:
        return lambda fn: custom_op(name, fn)
    definition = _BY_NAME[name] = CustomOpDef(name, fn)
    return definition


triton_op = custom_op


def _named(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _BY_NAME:
        raise RuntimeError(f"there is no op {op!r}: custom_op({op!r}, function, mutates_args=())")
    return _BY_NAME[op]


def register_autograd(
    op: str | CustomOpDef,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """`CustomOpDef.register_autograd` of an op by its name."""
    _named(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef, device_types: Any, func: Any = None, /, *, lib: Any = None
) -> Any:
    """`CustomOpDef.register_kernel` of an op by its name."""
    return _named(op).register_kernel(device_types, func)


def register_fake(op: str | CustomOpDef, func: Any = None, /, **settings: Any) -> Any:
    """Take the function that computes shapes alone, which nothing asks for."""
    return (lambda func: func) if func is None else func


impl_abstract = register_fake


def register_vmap(op: str | CustomOpDef, func: Any = None, /, *, lib: Any = None) -> Any:
    """Refuse with a NotImplementedError that names what to write instead."""
    return _named(op).register_vmap(func)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    raise RuntimeError("lucid_gpu.library.define: write custom_op(name, mutates_args=())")


def impl(qualname: str, types: Any, func: Any = None, *, lib: Any = None) -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    raise RuntimeError("lucid_gpu.library.impl: write custom_op(name, mutates_args=())")


class Library:
    """PyTorch's table of ops; making one refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise RuntimeError(
            "lucid_gpu.library.Library: there is no table of ops; write custom_op(name, "
            "mutates_args=())"
        )
