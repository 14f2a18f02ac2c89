"""The door of ops: autocast, vmap and others (`NAMES` to `EAGER`) see a call before its body.

A function marked with `op` may be called from anywhere, by any name. In ordinary programs nobody is
behind the door and a call goes straight to the body. While `interpreters` holds something, the
call goes to the first of them; each calls the next, and the last calls the body. Before all of
them those are asked that define ``__torch_function__`` (`overrides`).
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, overload

from lucid_gpu.tape.overrides import UNHANDLED, handled, handled_after, handling, overrides
from lucid_gpu.tape.short import short

__all__ = [
    "PACKAGE",
    "Cast",
    "Interpreter",
    "Truth",
    "Watch",
    "body_of",
    "interpret",
    "interpreters",
    "op",
    "op_of",
]

F = TypeVar("F", bound=Callable[..., Any])
Next = Callable[..., Any]
Interpreter = Callable[[Any, tuple[Any, ...], dict[str, Any], Next], Any]
"""Called as ``(op, args, kwargs, go_on)``; ``go_on(*args, **kwargs)`` is what comes after it."""

PACKAGE = os.path.join(str(Path(__file__).parents[1]), "")  # where its lines are
_PLAIN: dict[Any, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "bool | None": (bool, type(None)),
    "int | None": (int, type(None)),
}  # what is taken where an annotation says so; the first is named in errors
Truth = Any  # the annotation of a flag of which PyTorch's Python code asks the truth alone
NAMES, AUTOCAST, VMAP, DEVICE, CAPTURE, EAGER = range(6)  # the order in which they see a call
interpreters: list[Interpreter] = []
_ranks: list[int] = []
_changing = threading.Lock()


Cast = Literal["lower", "float32", "promote", "refuse"]
Autocast = Cast | Mapping[str, Cast] | None


@overload
def op(body: F, /, *, autocast: Autocast = None, whole: bool = False) -> F: ...
@overload
def op(*, autocast: Autocast = None, whole: bool = False) -> Callable[[F], F]: ...
def op(body: Any = None, /, *, autocast: Autocast = None, whole: bool = False) -> Any:
    """Let interpreters see each call of a function.

    The result has the function as ``body``, and as ``autocast`` a mapping from device types to what
    autocast does there. The public function that it is, or that wraps it, is set as ``shown``.

    Parameters
    ----------
    body : callable
    autocast : {"lower", "float32", "promote", "refuse"} or mapping, optional
        What autocast does with floating point arguments: "lower" casts them to its 16-bit type,
        "float32" to that type, "promote" to the widest type among them, "refuse" raises. A mapping
        says it of "cpu" and of "cuda"; on a device type that it leaves out, nothing is cast.
    whole : bool
        Whether it is composed of rows here and one op in PyTorch: ``LUCID_EAGER=1`` computes its
        result on its line, and nothing on the way, so that it goes backward as one.

    Raises
    ------
    ValueError
        For another word.
    """
    if body is None:
        return functools.partial(op, autocast=autocast, whole=whole)
    casts = dict.fromkeys(("cpu", "cuda"), autocast) if isinstance(autocast, str) else autocast
    for kind in (casts or {}).values():
        if kind not in get_args(Cast):
            words = ", ".join(get_args(Cast))
            raise ValueError(f"op(): autocast of {body.__name__} is {kind!r}; it is one of {words}")

    # who calls a private one has been checked
    first, plain = (0, ()) if body.__name__[0] == "_" else number_parameters(body)

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = checked_numbers(call, plain, args, kwargs)
        if interpreters or handling:
            return interpret(call, args, kwargs)
        try:
            return body(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            return failed(error, args, kwargs)

    def failed(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _after_failure(call, error, args, kwargs)

    kinds, seen = (AttributeError, TypeError), (interpreters, handling)
    careful = frozenset([name for name, _, _ in plain])
    call = short(body, slow, failed, kinds, seen, first if plain else None, careful, plain)
    call.body, call.autocast, call.whole = body, casts or {}, whole
    return call


Plain = tuple[tuple[str, int, tuple[type, ...]], ...]  # each by its name and place


def number_parameters(body: Callable[..., Any]) -> tuple[int, Plain]:
    """Where the first parameter that takes truth values or whole numbers alone stands, and all."""
    by_name_alone = inspect.unwrap(body).__kwdefaults__ or ()
    plain = []
    for place, (name, annotation) in enumerate(body.__annotations__.items()):  # every one has one
        kinds = _PLAIN.get(annotation)
        if kinds is not None and name[0] != "_" and name != "return":
            plain.append((name, sys.maxsize if name in by_name_alone else place, kinds))
    return min([place for _, place, _ in plain], default=0), tuple(plain)


def checked_numbers(
    op: Any, plain: Plain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, in which NumPy's whole numbers, whose sums overflow, and tensors are ints.

    Raises
    ------
    TypeError
        As in PyTorch, for what is neither a truth value nor a whole number where one is said:
        Python would take 1.5, "no" and [False] for True, and True for 1.
    """
    for name, place, kinds in plain:
        if args[place:]:
            value = args[place]
        elif name in kwargs:
            value = kwargs[name]
        else:
            continue
        if type(value) in kinds or (name == "requires_grad" and value is None) or overrides(value):
            continue
        require_kind(op, name, kinds[0], value)
        if args[place:]:
            args = (*args[:place], operator.index(value), *args[place + 1 :])
        else:
            kwargs = {**kwargs, name: operator.index(value)}
    return args, kwargs


def require_kind(op: Any, name: str, kind: type, value: Any) -> None:
    """Refuse what is no truth value, or no whole number, of which a 0-d tensor may be one."""
    whole = hasattr(type(value), "__index__") and type(value) is not bool
    # a tensor has an index, but only one of whole numbers gives it
    whole = whole and getattr(getattr(value, "dtype", 0), "category", 1) == 1
    if type(value) is kind or (kind is int and whole and not getattr(value, "ndim", 0)):
        return
    raise TypeError(
        f"{op.__name__.lstrip('_')}(): argument '{name}' must be {kind.__name__}, not "
        f"{type_name(value)}"
    )


def type_name(value: Any) -> str:
    """What an error calls the type of what was given: PyTorch's tensors are "Tensor" by name."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package != "torch":
        return f"numpy.{kind.__name__}" if package == "numpy" else kind.__name__
    hint = " (lucid_gpu.from_torch(x.detach()) takes it over)" if hasattr(kind, "detach") else ""
    return f"PyTorch's {kind.__module__}.{kind.__name__}{hint}"


def with_public_name(
    function: Any, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """The error, in whose sentence the public name of the function stands.

    An argument that is no tensor and lacks what tensors have is a TypeError. What a user's code
    raises, called by the function, stays as it is.
    """
    if not _is_ours(error):
        return error
    name = function.__name__
    name = name if name[:2] == "__" else name.lstrip("_")
    if isinstance(error, AttributeError):
        given = [*enumerate(args), *kwargs.items()]
        names = list(function.__annotations__)
        for role, value in given:
            if value is error.obj and not hasattr(type(value), "__torch_function__"):
                role = names[role] if isinstance(role, int) and names[role:] else role
                said = f"{name}(): argument '{role}' must be Tensor, not {type_name(value)}"
                return TypeError(said)
        return error
    text = str(error)
    if type(error) is not TypeError or not text:
        return error
    inner = vars(error).get("named", body_of(function).__qualname__)  # an op called, or itself
    if text.startswith(f"{inner}()"):
        text = f"{name}{text.removeprefix(inner)}"
    elif name.strip("_") not in text and not re.match(r"[\w.<>]+\(\)", text):
        text = f"{name}(): {text}"
    else:
        return error
    error.args, error.named = (text,), name  # type: ignore[attr-defined]
    return error


def _is_ours(error: Exception) -> bool:
    """Whether a line of this package raised it, or none: the arguments of a call did not fit."""
    lines = traceback.extract_tb(error.__traceback__, limit=-1)
    return not lines or lines[0].filename.startswith(PACKAGE)


def _after_failure(op: Any, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the first objects that override ops say of a call that failed on them, or the error."""
    shown = op.__dict__.get("shown")
    answer = UNHANDLED if shown is None else handled_after(shown, args, kwargs)
    if answer is UNHANDLED:
        raise with_public_name(op, error, args, kwargs) from error.__cause__
    return answer


def interpret(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call of an op gives, by all interpreters of this moment."""
    if handling and op.__name__[0] != "_":
        answer = handled(op, args, kwargs)
        if answer is not UNHANDLED:
            return answer
    chain = tuple(interpreters)
    try:
        if not chain:
            return op.body(*args, **kwargs)
        return chain[0](op, args, kwargs, op.body if len(chain) == 1 else _go_on(op, chain, 1))
    except (AttributeError, TypeError) as error:
        return _after_failure(op, error, args, kwargs)


def _go_on(op: Any, chain: tuple[Any, ...], index: int) -> Next:
    """What an op is for the interpreter before this one."""
    if index == len(chain):
        body: Next = op.body
        return body

    def call(*args: Any, **kwargs: Any) -> Any:
        return chain[index](op, args, kwargs, _go_on(op, chain, index + 1))

    return call


def body_of(function: F) -> F:
    """What an op leads to where nobody is behind the door; any other function as it is."""
    inner = getattr(function, "__wrapped__", None)
    is_op = inner is not None and function.__dict__.get("body") is inner
    return cast(F, inner) if is_op else function


def op_of(function: Any) -> Any:
    """The op that a public function calls: itself, or what it wraps; None if there is none."""
    while function is not None and body_of(function) is function:
        function = getattr(function, "__wrapped__", None)
    return function


class Watch:
    """Keeps an interpreter behind the door while any thread is inside a ``with`` of this.

    Parameters
    ----------
    rank : int
        `NAMES`, `AUTOCAST`, `VMAP`, `DEVICE`, `CAPTURE` or `EAGER`.
    make : callable
        Gives the interpreter, when it is first wanted.
    """

    def __init__(self, rank: int, make: Callable[[], Interpreter]) -> None:
        self.rank, self.make = rank, make
        self.users = 0
        self.interpreter: Interpreter | None = None

    def __enter__(self) -> None:
        if self.interpreter is None:
            self.interpreter = self.make()
        with _changing:
            if not self.users:
                at = sum(rank < self.rank for rank in _ranks)
                _ranks.insert(at, self.rank)
                interpreters.insert(at, self.interpreter)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with _changing:
            self.users -= 1
            if not self.users:
                at = _ranks.index(self.rank)
                del _ranks[at], interpreters[at]
