"""``__torch_function__``: which handlers see a call before its op, and how methods come to them.

In ordinary programs there are no handlers and nothing here runs. Once a class overrides ops, or
while a `TorchFunctionMode` is active, `handling` is not empty, for which public functions look, and
methods of Tensor are `Method` objects, which call handlers before the method that stood there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from types import FunctionType, MethodType
from typing import Any, TypeVar

from lucid_gpu.tape.modes import state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.short import short

__all__ = [
    "DISABLED",
    "UNHANDLED",
    "Accessor",
    "Attribute",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "Fields",
    "Method",
    "UserAttributes",
    "as_method",
    "attributes",
    "changed",
    "declined",
    "disabled",
    "dispatch",
    "enter",
    "fields",
    "function_of",
    "handled",
    "handled_after",
    "handling",
    "has_handler",
    "is_overridable",
    "leave",
    "name_of",
    "overridable",
    "overrides",
    "overriding",
    "start",
    "subclass",
    "user_attributes",
    "user_dict",
    "watch",
    "without_handlers",
]

F = TypeVar("F", bound=Callable[..., Any])
UNHANDLED: Any = object()
handling: list[Any] = []  # not empty while there are handlers
ENABLED, SUBCLASSES_DISABLED, DISABLED = range(3)  # values of `state.override_level`

# Methods of Tensor that PyTorch's operators call: what is asked gets these.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__itruediv__": "div_", "__div__": "div", "__idiv__": "div_", "__ifloordiv__": "floor_divide_",
    "__mod__": "remainder", "__imod__": "remainder_", "__matmul__": "matmul", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__rand__": "bitwise_and",
    "__ror__": "bitwise_or", "__rxor__": "bitwise_xor", "__neg__": "neg", "__abs__": "abs",
    "__pos__": "positive", "__pow__": "pow",
}  # fmt: skip
# Operators whose TypeError means that the other operand's class may have its turn.
_DUNDERS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift div"
_BINARY = frozenset(
    [f"__{prefix}{name}__" for name in _DUNDERS.split() for prefix in ("", "r", "i")]
    + [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
)
_PROTOCOLS = """len bool float int complex index contains format array getitem setitem repr deepcopy
    reduce_ex reversed dlpack dlpack_device neg abs invert pos rdivmod"""
_SPECIAL = _BINARY | frozenset([f"__{name}__" for name in _PROTOCOLS.split()])
_PRIVATE = frozenset(("_grad", "_grad_fn", "_version"))
# Methods without an underscore that are no user's, and PyTorch's that ask nobody.
_UNASKED = frozenset(
    ("array", "alias", "as_gradient", "plus", "unrecorded", "as_subclass", "is_inference")
)


# --- who is asked --------------------------------------------------------------------------------


def disabled(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """What ``__torch_function__`` is on classes whose ops are Tensor's: call the function.

    NotImplemented where PyTorch's own functions ask such a class: those of this package do not.
    """
    if any(getattr(kind, "__torch_function__", None) is disabled for kind in types):
        return NotImplemented
    before = state.override_level
    state.override_level = before or SUBCLASSES_DISABLED
    try:
        return func(*args, **(kwargs or {}))
    finally:
        state.override_level = before


disabled.__name__ = disabled.__qualname__ = "_disabled_torch_function_impl"

_plain: set[type] = {bool, int, float, complex, str, bytes, type(None), slice, type(Ellipsis)}


def overrides(value: Any) -> bool:
    """Whether the class of an object overrides ops."""
    kind = type(value)
    if kind in _plain:
        return False
    handler = getattr(kind, "__torch_function__", None)
    if handler is None or handler is disabled:
        return False
    if any(_is_pytorchs(c) for c in kind.__mro__):  # its handler calls PyTorch's functions only
        _plain.add(kind)
        return False
    return True


def _is_pytorchs(kind: type) -> bool:
    """Whether a class is PyTorch's tensor, which `from_torch` and `asarray` take."""
    return kind.__name__ == "Tensor" and kind.__module__ == "torch" and kind is not _switch.tensor


def is_pytorchs(function: Any) -> bool:
    """Whether a function is PyTorch's, which would ask the classes of tensors here for ever."""
    module: str | None = getattr(function, "__module__", None)
    return module is None or module.partition(".")[0] == "torch"


def _candidates(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in _plain:
            continue
        if isinstance(value, (list, tuple)):
            yield from value
        yield value


def overriding(values: Any) -> list[Any]:
    """Objects that override ops, one of each class, in the order in which they are asked.

    That is from left to right, but for subclasses, which come before their superclasses.
    """
    found: list[Any] = []
    for value in values:
        if type(value) in _plain or not overrides(value):
            continue
        kind = type(value)
        if any(type(other) is kind for other in found):
            continue
        at = next((i for i, o in enumerate(found) if issubclass(kind, type(o))), len(found))
        found.insert(at, value)
    return found


def handled(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What handlers give for a call; `UNHANDLED` where there are none."""
    level = state.override_level
    if level == DISABLED:
        return UNHANDLED
    found = [] if level or func.__name__ in _OF_DATA else overriding(_candidates(args, kwargs))
    if not found and not state.function_modes:
        return UNHANDLED
    return dispatch(func, found, tuple(args), kwargs)


# Functions that only modes see: their arguments are data, which may be long lists.
_OF_DATA = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "new_tensor", "backward"))


def has_handler(values: Any) -> bool:
    """Whether one of some objects overrides ops on this thread, or a mode is active."""
    if state.override_level == DISABLED:
        return False
    return bool(state.function_modes) or (not state.override_level and any(map(overrides, values)))


def dispatch(
    func: Any,
    found: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    refuse: Callable[..., TypeError] | None = None,
) -> Any:
    """Ask the innermost mode, then objects, until one answers.

    Parameters
    ----------
    func : callable
    found : sequence
        As `overriding` gives them.
    args, kwargs
    refuse : callable, optional
        Makes the error of ``(func, found, mode)``, where nobody answers.

    Raises
    ------
    TypeError
        If all answer NotImplemented.
    """
    types = tuple([type(value) for value in found])
    modes = state.function_modes
    if modes:
        state.function_modes = modes[:-1]
        try:
            result = modes[-1].__torch_function__(func, types, args, kwargs)
        finally:
            state.function_modes = modes
        if result is not NotImplemented:
            return result
    for value in found:
        result = value.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise (refuse or _multiple)(func, found, modes[-1] if modes else None)


def _multiple(func: Any, found: Sequence[Any], mode: Any) -> TypeError:
    """PyTorch's sentence of a function that everybody declined."""
    lines = [f"  - mode object {mode!r}"] if mode is not None else []
    lines += [f"  - tensor subclass {type(value)!r}" for value in found]
    said = "\n".join(lines)
    return TypeError(
        f"Multiple dispatch failed for '{name_of(func)}'; all __torch_function__ handlers "
        f"returned NotImplemented:\n\n{said}\n\nReturn func(*args, **kwargs) there for functions "
        "that the class does not override"
    )


def name_of(func: Any) -> str:
    """The full name of a function, in PyTorch's words."""
    if isinstance(func, Accessor):
        return f"torch.Tensor.{func.attribute}.{func.__name__}"
    module = getattr(func, "__module__", None) or "torch"
    if isinstance(func, Method):
        return f"torch.Tensor.{func.name}"
    if module.split(".")[0] == "lucid_gpu":
        place = module.removeprefix("lucid_gpu")
        module = f"torch{place}" if place in _PLACES else "torch"
    return f"{module}.{getattr(func, '__qualname__', None) or func.__name__}"


_PLACES = (".nn.functional", ".nn.init", ".linalg", ".fft", ".special")


def handled_after(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What handlers give for a call that failed before there were any, of its operands' classes.

    `UNHANDLED` where none overrides ops. From then on they come first.
    """
    if handling:
        return UNHANDLED
    if not overriding(_candidates(args, kwargs)):
        return UNHANDLED
    start()
    return handled(func, args, kwargs)


def without_handlers(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function without handlers."""
    before, state.override_level = state.override_level, DISABLED
    try:
        return function(*args)
    finally:
        state.override_level = before


def declined(name: str, tensor: Any, *others: Any) -> Any:
    """What a method gives for operands that it does not know: NotImplemented.

    Where one overrides ops and is the first such object, it is asked now.
    """
    if handling or not overriding(_candidates(others, {})):
        return NotImplemented
    start()
    method = getattr(type(tensor), name, None)  # none of NumPy's names of a ufunc
    return NotImplemented if method is None else method(tensor, *others)


def changed(**settings: Any) -> dict[str, Any]:
    """The settings, each given beside its default, that are not that."""
    return {name: value for name, (value, usual) in settings.items() if value is not usual}


def overridable(function: F) -> F:
    """A function that asks first."""

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = handled(call, args, kwargs)
        return function(*args, **kwargs) if answer is UNHANDLED else answer

    def failed(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (answer := handled_after(call, args, kwargs)) is UNHANDLED:
            raise error
        return answer

    call: F = short(function, slow, failed, (AttributeError, TypeError), (handling, ()))
    return call


# --- Tensor's methods and attributes --------------------------------------------------------------


# The types of functions and methods: some are short cuts in C.
METHODS: list[type] = [FunctionType, *([] if core is None else [core.Door, core.Method])]


class Method:
    """A method of Tensor that asks before it runs; equal to the method itself.

    Parameters
    ----------
    owner : type
    name : str
    attribute : callable or descriptor
        What stood there: a function, or what loads one.
    """

    def __init__(self, owner: type, name: str, attribute: Any) -> None:
        self.owner, self.name, self.attribute = owner, name, attribute
        self.__name__ = name  # that of its function may be another
        self.gives_way = name in _BINARY
        self.loaded: Any = None if hasattr(type(attribute), "load") else attribute

    @property
    def function(self) -> Any:
        """The method itself."""
        if self.loaded is None:
            self.loaded = self.attribute.load()
        return self.loaded

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        level = state.override_level
        if level != DISABLED:
            found = [] if level else overriding(_candidates(args, kwargs))
            if found or state.function_modes:
                return self._asked(found, args, kwargs)
        return (self.loaded or self.function)(*args, **kwargs)

    def _asked(self, found: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shown = _methods.get(_OPERATORS.get(self.name, self.name), self)
        if not self.gives_way:
            return dispatch(shown, found, args, kwargs)
        try:
            return dispatch(shown, found, args, kwargs)
        except TypeError:
            return NotImplemented

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return f"<method {self.name!r} of {self.owner.__name__!r}>"

    def __reduce__(self) -> Any:
        return getattr, (self.owner, self.name)

    def __getattr__(self, name: str) -> Any:
        if name in ("loaded", "attribute", "function"):
            raise AttributeError(name)
        return getattr(self.function, name)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.function.__doc__

    @property
    def __wrapped__(self) -> Any:
        return self.function


class Accessor:
    """``Tensor.shape.__get__`` as those are shown it that are asked; equal to that.

    Parameters
    ----------
    attribute : str
    owner : property
    name : {"__get__", "__set__", "__delete__"}
    """

    def __init__(self, attribute: str, owner: property, name: str) -> None:
        self.attribute, self.__self__, self.__name__ = attribute, owner, name
        self.function = getattr(owner, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = handled(self, args, kwargs)
        return self.function(*args, **kwargs) if answer is UNHANDLED else answer

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Accessor) and other.function == self.function
        return same or bool(other == self.function)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return f"<{self.__name__!r} of the attribute {self.attribute!r} of Tensor>"


Accessor.__name__ = Accessor.__qualname__ = "method-wrapper"  # by this, packages know attributes


class Attribute:
    """An attribute of Tensor that asks; on the class it is the property itself."""

    def __init__(self, name: str, property: property) -> None:
        self.property = property
        self.read, self.write, self.remove = [
            Accessor(name, property, access) for access in ("__get__", "__set__", "__delete__")
        ]
        self.__doc__ = property.__doc__

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:
            return self.property
        answer = handled(self.read, (tensor,), {})
        return self.property.__get__(tensor, owner) if answer is UNHANDLED else answer

    def __set__(self, tensor: Any, value: Any) -> None:
        if handled(self.write, (tensor, value), {}) is UNHANDLED:
            self.property.__set__(tensor, value)

    def __delete__(self, tensor: Any) -> None:
        if handled(self.remove, (tensor,), {}) is UNHANDLED:
            self.property.__delete__(tensor)


_methods: dict[str, Method] = {}
_attributes: dict[str, Attribute] = {}


def function_of(function: Any) -> Any:
    """What a method of Tensor computes with, where it asks; any other as it is."""
    return function.function if isinstance(function, (Method, Accessor)) else function


def is_overridable(name: str) -> bool:
    """Whether a method or an attribute of Tensor is a user's, which those see that override ops."""
    return name in _SPECIAL or name in _PRIVATE or (name[0] != "_" and name not in _UNASKED)


class Fields:
    """What a tensor's own attributes lie in."""


fields: Any = vars(Fields)["__dict__"].__get__  # all of them, also those that are no user's


class UserAttributes(MutableMapping[str, Any]):
    """``__dict__`` of a tensor whose class overrides ops.

    Classes copy it to their results, so one sees in it what users set; PyTorch has nothing else
    there. By name one finds the others too.
    """

    def __init__(self, tensor: Any) -> None:
        self.all: dict[str, Any] = fields(tensor)

    def __getitem__(self, name: str) -> Any:
        return self.all[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.all[name] = value

    def __delitem__(self, name: str) -> None:
        del self.all[name]

    def __contains__(self, name: object) -> bool:
        return name in self.all

    def __iter__(self) -> Iterator[str]:
        return iter(user_attributes(self.all))

    def __len__(self) -> int:
        return len(user_attributes(self.all))

    def __repr__(self) -> str:
        return repr(user_attributes(self.all))

    def copy(self) -> dict[str, Any]:
        """A dictionary of what users set."""
        return user_attributes(self.all)

    __copy__ = copy

    def __reduce__(self) -> Any:
        return dict, (user_attributes(self.all),)

    def update(self, *others: Any, **named: Any) -> None:
        """Set these, but for attributes that are no user's."""
        self.all.update(user_attributes(dict(*others, **named)))


def user_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Those that copies have too: the user's, and the mark of a parameter of a subclass."""
    return {k: v for k, v in attributes.items() if k[0] != "_" or k == "_is_param"}


def _set_user_dict(tensor: Any, attributes: Any) -> None:
    """Replace the user's attributes."""
    own, new = fields(tensor), user_attributes(dict(attributes))
    for name in user_attributes(own):
        del own[name]
    own.update(new)


def _get_user_dict(tensor: Any) -> Any:
    return UserAttributes(tensor) if overrides(tensor) else fields(tensor)


user_dict = property(_get_user_dict, _set_user_dict)


# --- when they ask --------------------------------------------------------------------------------


_SWITCHES = 100  # Python gives up caching the attributes of a class that changes for ever
_lock = threading.RLock()


class DisableTorchFunctionSubclass:
    """A ``with`` during which objects that override ops are not asked, but modes are."""

    _level = SUBCLASSES_DISABLED

    def __enter__(self) -> None:
        self.before = state.override_level
        state.override_level = max(self.before, self._level)

    def __exit__(self, *error: object) -> None:
        state.override_level = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A ``with`` during which nobody is asked."""

    _level = DISABLED


class _Switch:
    """Whether Tensor's methods and attributes ask now, and what for."""

    tensor: type | None = None  # Tensor
    methods = attributes = False
    for_ever = False  # a class overrides ops
    modes = switches = 0


_switch = _Switch()


def watch(tensor: type) -> None:
    """Say which class is Tensor."""
    _switch.tensor = tensor
    _plain.add(tensor)


def start() -> None:
    """From now on objects that override ops are asked, in every thread."""
    if not _switch.for_ever:
        with _lock:
            _switch.for_ever = True
            _turn()


def enter(mode: Any) -> None:
    """Let a mode see what this thread calls."""
    with _lock:
        _switch.modes += 1
        if _switch.modes == 1:
            _turn()
    state.function_modes = (*state.function_modes, mode)


def leave() -> None:
    """End what the innermost mode sees."""
    state.function_modes = state.function_modes[:-1]
    with _lock:
        _switch.modes -= 1
        if not _switch.modes and _switch.switches < _SWITCHES:
            _turn()


def _turn() -> None:
    """Put in Tensor's class what asks, or what stood there before."""
    watched = bool(_switch.modes)
    needed = watched or _switch.for_ever
    handling[:] = [True] if needed else []
    if needed is not _switch.methods:
        _switch.methods = needed
        for name, value in tuple(vars(_switch.tensor).items()):
            _put(name, as_method(name, value) if needed else _before(value))
    if watched is not _switch.attributes:
        _switch.attributes = watched
        _switch.switches += 1
        for name, attribute in attributes().items():
            _put(name, attribute if watched else attribute.property)


def _put(name: str, value: Any) -> None:
    if vars(_switch.tensor).get(name) is not value:
        setattr(_switch.tensor, name, value)


def _before(value: Any) -> Any:
    if not isinstance(value, Method):
        return value
    return value.loaded or value.attribute


def as_method(name: str, value: Any) -> Any:
    """What Tensor's class has under a name: the value, or a `Method` of it."""
    is_method = type(value) in METHODS or hasattr(type(value), "load")
    if not (_switch.methods and is_method and is_overridable(name)):
        return value
    known = _methods.get(name)
    if known is None or (value is not known.attribute and value is not known.loaded):
        assert _switch.tensor is not None
        known = _methods[name] = Method(_switch.tensor, name, value)
    return known


def attributes() -> dict[str, Attribute]:
    """Tensor's attributes, as those that ask."""
    for name, value in vars(_switch.tensor).items():
        if isinstance(value, property) and name not in _attributes and is_overridable(name):
            _attributes[name] = Attribute(name, value)
    return _attributes


def subclass(kind: Any) -> None:
    """Let a subclass of Tensor that overrides ops be asked of its attributes too."""
    if kind.__torch_function__ is disabled:
        return
    start()
    for name, attribute in attributes().items():
        found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), None)
        if found is attribute.property:
            setattr(kind, name, attribute)
