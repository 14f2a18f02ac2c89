"""`torch.overrides`: how classes and modes override ops by ``__torch_function__``."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from lucid_gpu.tape import overrides
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.overrides import METHODS, Accessor, Method, enter, leave, name_of, overriding
from lucid_gpu.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

# Namespaces of public functions, and those in them that take no tensors or ask nobody.
_SPACES = ("", "functional", "nn.functional", "nn.init", "linalg", "fft", "special")
_NO_TENSORS = """arange
    as_tensor asarray bartlett_window blackman_window broadcast_shapes calculate_gain
    can_cast clear_autocast_cache compile empty empty_permuted empty_strided explain eye fftfreq
    from_dlpack from_file from_numpy frombuffer full hamming_window hann_window initial_seed
    install_as_torch is_storage is_tensor kaiser_window linspace load logspace manual_seed normal
    ones promote_types rand randint randn randperm range result_type rfftfreq save scalar_tensor
    seed sparse_coo_tensor summary tensor tril_indices triu_indices typename vander vmap
    zeros"""
_IGNORED = frozenset(_NO_TENSORS.split())
_CHOSEN = {"nn.init": ("constant_", "kaiming_uniform_", "normal_", "uniform_")}
_METHODS = {("nn.functional", "sigmoid"), ("nn.functional", "tanh")}  # call those, and no more
_NEW = """new new_empty new_empty_strided new_full new_ones new_tensor new_zeros stride
    unflatten"""
_TENSORS_IGNORED = frozenset(_NEW.split())


def _is_ignored(name: str) -> bool:
    settings = ("get_", "set_", "is_autocast", "is_grad", "is_anomaly", "is_warn", "are_", "use_",
                "is_deterministic", "is_inference_mode")  # fmt: skip
    return name in _IGNORED or name.startswith(("_", *settings))


@functools.cache
def _functions() -> dict[Any, list[Callable[..., Any]]]:
    found: dict[Any, list[Callable[..., Any]]] = {}
    for space in _SPACES:
        module = importlib.import_module(f"lucid_gpu.{space}".rstrip("."))
        names = _CHOSEN.get(space) or getattr(module, "__all__", None) or dir(module)
        found[module] = [
            value
            for name in names
            if not _is_ignored(name)
            and (space, name) not in _METHODS
            and type(value := cast("Any", getattr(module, name, None))) in METHODS
            and value.__module__.startswith("lucid_gpu")
        ]
    return found


def _methods() -> Iterator[Callable[..., Any]]:
    for name in dir(Tensor):
        if name not in _TENSORS_IGNORED and overrides.is_overridable(name):
            value = inspect.getattr_static(Tensor, name)
            if isinstance(value, (property, overrides.Attribute)):
                yield getattr(Tensor, name).__get__
            elif callable(getattr(Tensor, name)):
                yield getattr(Tensor, name)


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that ask ``__torch_function__``, by the modules that have them, and methods."""
    return {**_functions(), Tensor: list(_methods())}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions that only modes see: none of their arguments is asked."""
    found = set()
    for space in _SPACES:
        module = importlib.import_module(f"lucid_gpu.{space}".rstrip("."))
        found |= {
            value
            for name in dir(module)
            if name in _IGNORED
            and type(value := cast("Any", getattr(module, name, None))) in METHODS
        }
    return found | {getattr(Tensor, name) for name in _TENSORS_IGNORED}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each function that can be overridden one of the same parameters, which gives -1."""
    return {
        function: _minus_one(function)
        for functions in get_overridable_functions().values()
        for function in functions
    }


def _minus_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        override.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except ValueError:  # an access of an attribute
        given = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        override.__signature__ = inspect.Signature([given])  # type: ignore[attr-defined]
    return override


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Accesses that give plain tensors on subclasses too, such as ``Tensor.grad.__get__``."""
    return {Tensor.grad.__get__, Tensor._grad.__get__}


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument overrides ops, or a mode is active."""
    return overrides.has_handler(relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one object."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of arguments one by one."""
    return has_torch_function(args)


def _unimplemented(func: Any, found: Any, mode: Any) -> TypeError:
    """PyTorch's sentence of a Python function that everybody declined."""
    kinds = [type(value) for value in found]
    where = f" nor was it found on the currently active mode {mode}" if mode is not None else ""
    return TypeError(
        f"no implementation found for '{func.__module__}.{func.__name__}' on types that implement "
        f"__torch_function__: {kinds}{where}"
    )


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Ask the active mode and the arguments that override ops; TypeError where nobody answers.

    Parameters
    ----------
    public_api : callable
        The function that was called.
    relevant_args : iterable
        Those of its arguments that may override it.
    *args, **kwargs
        All of them.
    """
    found = [] if state.override_level else overriding(relevant_args)
    return overrides.dispatch(public_api, found, args, kwargs, _unimplemented)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of one's own ask; ``dispatcher`` gives its relevant arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The full name of a function that can be overridden, such as ``"torch.Tensor.add"``."""
    return f if isinstance(f, str) else _names().get(f) or name_of(f)


@functools.cache
def _names() -> dict[Any, str]:
    """The full names of public functions: of those under several, the first."""
    found: dict[Any, str] = {
        getattr(Tensor, name).__get__: f"torch.Tensor.{name}.__get__"
        for name in overrides.attributes()
    }
    for module, functions in _functions().items():
        place = module.__name__.replace("lucid_gpu", "torch", 1)
        for function in functions:
            names = [n for n, value in vars(module).items() if value is function]
            name = function.__name__ if function.__name__ in names else (names or [""])[0]
            found.setdefault(function, f"{place}.{name or function.__name__}")
    for name in filter(overrides.is_overridable, dir(Tensor)):
        if callable(method := getattr(Tensor, name)):
            found.setdefault(method, f"torch.Tensor.{name}")
    return found


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether this is a method of Tensor, or an access of an attribute."""
    if isinstance(func, (Method, Accessor)) or getattr(func, "__name__", "") == "__get__":
        return True
    return func in {overrides.function_of(f) for f in _methods()}


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor, or defines ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


class TorchFunctionMode:
    """A ``with`` that sees the calls of this thread, as its ``__torch_function__`` says.

    The innermost is asked first. While it answers it is not active itself, so that the function,
    called there, comes to the next one.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer a call; NotImplementedError unless a subclass does."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        enter(self)
        return self

    def __exit__(self, *error: object) -> None:
        leave()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls each function."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function."""
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    """The innermost mode, or None."""
    return state.function_modes[-1] if state.function_modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return list(state.function_modes)
