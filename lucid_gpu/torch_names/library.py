"""`torch.library`: functions of a user's under a name, with a gradient where one is registered.

An op is called by its name, ``torch.ops.namespace.name(...)``. What it runs is chosen by the device
of its first tensor; there is no other dispatch, and PyTorch's own ops cannot be replaced.
"""

from __future__ import annotations

import ast
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

from lucid_gpu.autograd import Function
from lucid_gpu.tape import costly
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "impl",
    "impl_abstract",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

_BY_NAME: dict[str, CustomOpDef] = {}
_UNDECLARED: dict[str, list[tuple[Any, Any]]] = {}  # what `impl` gave ops that `define` names later

# PyTorch's dispatch keys that say nothing about the device
_ANY_DEVICE = ("", "default", "compositeexplicitautograd", "compositeimplicitautograd")
_RESERVED = ("prim", "aten")
_THREAD = threading.local()


class AutoDispatchBelowAutograd:
    """`torch._C._AutoDispatchBelowAutograd`: inside, ops skip functions for "Autograd"."""

    def __enter__(self) -> None:
        _THREAD.below_autograd = getattr(_THREAD, "below_autograd", 0) + 1

    def __exit__(self, *exception: Any) -> None:
        _THREAD.below_autograd -= 1


class CustomOpDef:
    """A function of a user's, called under its own name.

    Attributes
    ----------
    name : str
        ``"namespace::name"``.
    """

    def __init__(self, name: str, signature: inspect.Signature | None = None) -> None:
        self.name = self._qualname = name
        self.__name__ = name.rpartition("::")[2]
        self._signature = signature
        self._functions: dict[str, Callable[..., Any]] = {}  # by device, "" for any other
        self._recorded: type[_Recorded] | None = None
        self._formula: tuple[Any, Any] | None = None  # backward and setup_context
        self._opaque = False  # is a gradient never that of the ops inside

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.name})>"

    @property
    def default(self) -> CustomOpDef:
        """The op itself: each has one form."""
        return self

    _opoverload = default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function for the device of the first tensor, and record its gradient."""
        if self._signature is not None:
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise RuntimeError(
                    f"{self.name}() {error}; its parameters: {self._signature}"
                ) from None
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        device = self._device(args, kwargs)
        if getattr(_THREAD, "below_autograd", 0):
            return self._run(args, kwargs)
        function = self._functions.get(f"autograd{device}") or self._functions.get("autograd")
        if function is not None:
            return function(*args, **kwargs)
        if (
            (self._recorded is not None or self._opaque)
            and is_grad_enabled()
            and any(t.requires_grad for t in _tensors((*args, *kwargs.values())))
        ):
            return self._record(args, kwargs)
        return self._run(args, kwargs)

    @staticmethod
    def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return next((t.device.type for t in _tensors((*args, *kwargs.values()))), "")

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = self._device(args, kwargs)
        function = self._functions.get(device) or self._functions.get("")
        if function is None:
            raise NotImplementedError(
                f"Could not run '{self.name}' with arguments from the '{device.upper()}' backend: "
                f"there is a function for {sorted(self._functions) or 'no device'}; register one "
                f"by register_kernel({self.name!r}, {device!r}, function)"
            )
        args, kwargs = self._shortened(args, kwargs)
        return function(*args, **kwargs)

    def _shortened(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments without the last that equal the schema's defaults, which functions have too."""
        if self._signature is None:
            return args, kwargs
        defaults = [p.default for p in self._signature.parameters.values()][: len(args)]
        while args and type(args[-1]) is type(defaults[-1]) and args[-1] == defaults[-1]:
            args = args[:-1]
            defaults.pop()
        parameters = self._signature.parameters
        return args, {
            k: v
            for k, v in kwargs.items()
            if isinstance(v, Tensor) or k not in parameters or v != parameters[k].default
        }

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorded = self._recorded or _recorded(self, _no_formula(self), None)
        call = _Call(tuple(len(a) if _is_list(a) else None for a in args), kwargs, [])
        out = recorded.apply(*_flat(args), call)
        return list(out) if call.gave_list else out

    def register_kernel(self, device_types: Any, func: Any = None, /) -> Any:
        """Use another function for tensors on these kinds of device."""
        if func is None:
            return lambda func: self.register_kernel(device_types, func)
        kinds = (device_types,) if isinstance(device_types, str) else device_types
        for kind in kinds or ("",):
            key = str(kind).lower()
            self._functions["" if key in _ANY_DEVICE else key] = func
        return func

    def register_fake(self, fn: Any, /) -> Any:
        """Use another function for tensors on the device meta."""
        self._functions["meta"] = fn
        return fn

    register_abstract = register_fake

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Let gradients go through ``backward(ctx, *grads)``.

        Parameters
        ----------
        setup_context : callable, optional
            ``setup_context(ctx, inputs, output)`` saves what backward needs; arguments that can
            only be given by name come as ``keyword_only_inputs``.
        """
        self._formula = backward, setup_context
        self._recorded = _recorded(self, backward, setup_context)

    def register_vmap(self, func: Any = None, /) -> Any:
        """Let `vmap` call ``func(info, in_dims, *args)``, which gives outputs and their dims.

        RuntimeError where no gradient is registered.
        """
        if func is None:
            return self.register_vmap
        if self._formula is None:
            raise RuntimeError(
                f"register_vmap of {self.name!r} needs a gradient: call register_autograd first"
            )

        def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
            call = inputs[-1]
            args, kwargs = self._shortened(_nested(inputs[:-1], call), call.kwargs)
            return func(info, _nested(in_dims[:-1], call), *args, **kwargs)

        self._recorded = _recorded(self, *self._formula, vmap)
        return func


class _Call(NamedTuple):
    """What of a call is no input of its node."""

    lengths: tuple[int | None, ...]  # of arguments that are lists
    kwargs: dict[str, Any]
    gave_list: list[bool]  # filled by forward where it gave a list


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        for v in value if _is_list(value) else (value,):
            if isinstance(v, Tensor):
                yield v


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if _is_list(value):
            yield from value
        else:
            yield value


def _nested(flat: Sequence[Any], call: _Call) -> tuple[Any, ...]:
    values = iter(flat)
    return tuple(
        next(values) if n is None else [next(values) for _ in range(n)] for n in call.lengths
    )


class _Recorded(Function):
    """The node of an op's calls; its last input is a `_Call`."""


def _recorded(
    op: CustomOpDef,
    backward: Callable[..., Any],
    save: Callable[..., Any] | None,
    vmap: Callable[..., Any] | None = None,
) -> type[_Recorded]:
    """The function that records calls of ``op``."""

    def forward(*inputs: Any) -> Any:
        call = inputs[-1]
        args = _nested(inputs[:-1], call)
        if costly.active:
            where = next(_tensors(args)).device
            compute = partial(op._run, args, call.kwargs)
            out = costly.run(op.name, where, compute, args, (), op)
        else:
            out = op._run(args, call.kwargs)
        if isinstance(out, list):
            call.gave_list.append(True)
            return tuple(out)
        return out

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx._call = call = inputs[-1]
        by_name = {"keyword_only_inputs": call.kwargs} if call.kwargs else {}
        if save is not None:
            result = list(output) if call.gave_list else output
            save(ctx, _nested(inputs[:-1], call), result, **by_name)

    def grads_of_inputs(ctx: Any, *grads: Any) -> Any:
        call, needed = ctx._call, ctx.needs_input_grad
        ctx.needs_input_grad = _nested(needed[:-1], call)
        try:
            out = backward(ctx, list(grads)) if call.gave_list else backward(ctx, *grads)
        finally:
            ctx.needs_input_grad = needed
        out = out if isinstance(out, tuple) else (out,)
        flat: list[Any] = []
        for grad, n in zip(out, call.lengths, strict=True):
            flat += [grad] if n is None else [None] * n if grad is None else grad
        return (*flat, None)

    methods = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(grads_of_inputs),
    }
    if vmap is not None:
        methods["vmap"] = staticmethod(vmap)
    return type(op.__name__, (_Recorded,), methods)


def _no_formula(op: CustomOpDef) -> Callable[..., Any]:
    """The backward of an op that has none."""

    def backward(ctx: Any, *grads: Any) -> NoReturn:
        raise RuntimeError(
            f"Trying to backward through {op.name.replace('::', '.')} but no autograd "
            "formula was registered. Please use register_autograd to add one."
        )

    return backward


def _value(text: str) -> Any:
    """A default in a schema."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _parsed(schema: str) -> tuple[str, inspect.Signature]:
    """The name and the parameters of ``"name(Tensor x, float alpha=1.0) -> Tensor"``."""
    match = re.fullmatch(r"\s*([\w:.]*)\s*\((.*)\)\s*->.*", schema, re.DOTALL)
    if match is None:
        raise RuntimeError(
            f"expected a schema of the form 'name(Tensor x, float a=1.0) -> Tensor', got {schema!r}"
        )
    name, inside = match[1], match[2]
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for part in re.split(r",(?![^\[(]*[\])])", inside):  # commas outside brackets
        words, _, default = part.strip().partition("=")
        if words == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif words:
            value = _value(default) if default else inspect.Parameter.empty
            parameters.append(inspect.Parameter(words.split()[-1], kind, default=value))
    return name, inspect.Signature(parameters)


def _named(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _BY_NAME:
        raise RuntimeError(f"there is no op {op!r}: custom_op({op!r}, function, mutates_args=())")
    return _BY_NAME[op]


def _declared(name: str, signature: inspect.Signature) -> CustomOpDef:
    """A new op of this name, with the functions it was given before."""
    op = _BY_NAME[name] = CustomOpDef(name, signature)
    for types, func in _UNDECLARED.pop(name, ()):
        op.register_kernel(types, func)
    return op


def _implement(op: str | CustomOpDef, types: Any, func: Any) -> Any:
    """Give an op a function, also one that is declared later; without one, a decorator."""
    if func is None:
        return lambda func: _implement(op, types, func)
    if isinstance(op, str) and op not in _BY_NAME:
        _qualified(op, "impl(qualname, types, func)")
        _UNDECLARED.setdefault(op, []).append((types, func))
        return func
    return _named(op).register_kernel(types, func)


def _qualified(name: str, caller: str) -> str:
    """The name of an op that may be defined."""
    namespace, colons, _ = name.partition("::")
    if not colons:
        raise ValueError(f"{caller}: expected a name of the form 'namespace::name', got {name!r}")
    if namespace in _RESERVED:
        raise ValueError(
            f"{namespace} is a reserved namespace. Please try creating a library with another name."
        )
    return name


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

    The gradient is never that of the ops inside: without `register_autograd`, backward raises.

    Parameters
    ----------
    name : str
        ``"namespace::name"``.
    mutates_args : str or iterable of str
        Arguments that the function writes. Such an op is not recorded.
    device_types : str or sequence of str, optional
        The kinds of device that the function is for (default: all).
    schema : str, optional
        ``"(Tensor x, float alpha=1.0) -> Tensor"``; by default the function's own parameters.
    tags
        Taken as PyTorch takes them; nothing here asks for them.
    """
    _qualified(name, "custom_op")
    if fn is None:
        return lambda fn: custom_op(
            name, fn, mutates_args=mutates_args, device_types=device_types, schema=schema
        )
    signature = _parsed(schema)[1] if schema is not None else inspect.signature(fn)
    op = _declared(name, signature)
    op.__doc__ = fn.__doc__
    op._opaque = not mutates_args
    op.register_kernel(device_types, fn)
    return op


triton_op = custom_op


def wrap_triton(kernel: Any) -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    raise RuntimeError("lucid_gpu.library.wrap_triton: write the kernel by cuda.kernel")


def fallthrough_kernel() -> NoReturn:
    """Stand for "the next function" in PyTorch's dispatch; never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def get_ctx() -> NoReturn:
    """Refuse with a RuntimeError: there are no sizes that are symbols."""
    raise RuntimeError(
        "lucid_gpu.library.get_ctx: on the device meta sizes are numbers; one that depends on "
        "values has none"
    )


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
    """`CustomOpDef.register_fake` of an op by its name; of one that is not here, nothing."""
    if func is None:
        return lambda func: register_fake(op, func)
    if isinstance(op, CustomOpDef) or op in _BY_NAME:
        _named(op).register_fake(func)
    return func


impl_abstract = register_fake


def register_vmap(op: str | CustomOpDef, func: Any = None, /, *, lib: Any = None) -> Any:
    """`CustomOpDef.register_vmap` of an op by its name."""
    return _named(op).register_vmap(func)


def define(qualname: Any, schema: str, *args: Any, lib: Any = None, tags: Any = ()) -> Any:
    """Declare an op, to which `impl` gives functions.

    Parameters
    ----------
    qualname : str or Library
        ``"namespace::name"``; with a library, ``schema`` begins with the op's name, and a
        decorator comes back.
    schema : str
        ``"(Tensor x, float alpha=1.0) -> Tensor"``.
    """
    if isinstance(qualname, Library):
        name = qualname.define(schema)
        return impl(qualname, name)
    _qualified(qualname, "define(qualname, schema)")
    _declared(qualname, _parsed(schema)[1])
    return None


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Give an op the function for some kinds of device; without one, a decorator.

    The op may be declared later.

    Parameters
    ----------
    qualname : str or Library
        With a library, ``types`` is the op's name and ``func`` PyTorch's dispatch key.
    types : str or sequence of str
        ``"cpu"``, ``"cuda"`` or ``"default"``, which is any.
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def add(f: Any) -> Any:
            library.impl(name, f, key)
            return f

        return add
    return _implement(qualname, types, func)


class Library:
    """Ops of one namespace, which ``torch.ops.namespace`` has.

    Parameters
    ----------
    ns : str
        The namespace. PyTorch's own, "aten", cannot be extended.
    kind : {"DEF", "FRAGMENT", "IMPL"}
        Taken as PyTorch takes it; any of them may define and implement.
    dispatch_key : str, optional
        What `impl` takes for its own where it is called without: a device such as "CPU", or
        "Autograd", whose function is called in place of all and records its own gradient.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED:
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare ``"name(Tensor x, float alpha=1.0) -> Tensor"``, and give the name."""
        name, signature = _parsed(schema)
        name = name.rpartition("::")[2]
        qualified = f"{self.ns}::{name}"
        _declared(qualified, signature)
        return name

    def impl(
        self,
        op_name: str | CustomOpDef,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Give an op the function for a device, or the one that records its gradient.

        Functions for other keys are taken and never called.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        if fn is fallthrough_kernel:
            return
        name = op_name if isinstance(op_name, CustomOpDef) or "::" in op_name else None
        _implement(name or f"{self.ns}::{op_name}", dispatch_key or self.dispatch_key, fn)

    def _register_fake(self, op_name: str, fn: Any, *args: Any, **settings: Any) -> None:
        """Use a function for tensors on the device meta."""
        register_fake(op_name if "::" in op_name else f"{self.ns}::{op_name}", fn)

    def _destroy(self) -> None:
        """Forget the ops of this namespace."""
        for table in (_BY_NAME, _UNDECLARED):
            for name in [n for n in table if n.startswith(f"{self.ns}::")]:
                del table[name]


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A `Library` whose ops are forgotten after the block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()
