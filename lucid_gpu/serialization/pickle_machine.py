"""Pickles read by a machine of our own, which can do little.

It knows the opcodes that build plain containers, and calls only what a table hands it. Its memory
grows with the file's size: no opcode takes more than its own bytes, and calls are given no more
elements than the file could hold. Nothing nested is hashed or printed, because a pickle of fifty
pairs of pairs stands for more text than there is memory.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

from lucid_gpu.serialization.errors import Damage

__all__ = ["key", "run", "text"]

_Find = Callable[[str, str], Any]
_MARK = object()
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}


def run(
    file: BinaryIO,
    find: _Find,
    persistent: Callable[[Any], Any],
    call: Callable[[Any, tuple[Any, ...]], Any],
    build: Callable[[Any, Any], None],
    most: float,
) -> Any:
    """The object of the pickle that begins where the file stands.

    Parameters
    ----------
    find : callable
        What a module and a name stand for.
    persistent : callable
        The object of a persistent id.
    call, build : callable
        Apply what `find` gave; give an object its state.
    most : float
        How many elements and bytes calls and states may be given in all.

    Raises
    ------
    Damage
        For other opcodes, and for opcodes that do not fit what came before.
    """
    machine = _Machine(find, persistent, call, build, most)
    for op, argument, _ in pickletools.genops(file):
        name = op.name
        if name in _VALUES:
            machine.stack.append(argument)
        elif name in _NEW:
            machine.stack.append(_NEW[name]())
        elif name == "STOP":
            return machine.pop()
        else:
            step = getattr(machine, name, None) if name.isupper() else None
            if step is None:
                raise Damage(f"its pickle uses the opcode {name}, which torch.save does not write")
            step(argument)
    raise Damage("its pickle has no end")


def text(value: Any) -> str:
    """What is text, or a whole number: printing a tower of tuples would take for ever."""
    if type(value) not in (str, int):
        raise Damage(f"its pickle has a {type(value).__name__} where a name belongs")
    return str(value)


_MOST_IN_A_KEY = 100


def key(value: Any) -> Any:
    """What may be a key: hashing a tower of tuples would take for ever."""
    left, waiting = _MOST_IN_A_KEY, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (tuple, frozenset)):
            left -= len(part)
            if left < 0 and part is not value:  # one flat tuple is as long as its bytes
                raise Damage("a key of one of its dicts is a tuple of too many tuples")
            waiting.extend(part)
    hash(value)
    return value


class _Machine:
    """A stack and a memo; a method an opcode."""

    def __init__(self, find: _Find, persistent: Any, call: Any, build: Any, most: float) -> None:
        self.find, self.persistent, self.call, self.build = find, persistent, call, build
        self.left = most
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Damage("its pickle takes more than it gave")
        return self.stack.pop()

    def spend(self, argument: Any) -> None:
        """Count what a call is given: one long list may be named, and copied, a thousand times."""
        if isinstance(argument, _SIZED):
            self.left -= len(argument)
        if self.left < 0:
            raise Damage("its pickle makes more of its bytes than torch.save does")

    def to_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise Damage("its pickle has no mark where it needs one")

    def top(self, *kinds: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kinds):
            raise Damage("its pickle puts things into what is no container")
        return self.stack[-1]

    def PROTO(self, version: int) -> None:
        pass

    FRAME = PROTO

    def MARK(self, _: Any) -> None:
        self.stack.append(_MARK)

    def POP(self, _: Any) -> None:
        self.pop()

    def TUPLE(self, _: Any) -> None:
        self.stack.append(tuple(self.to_mark()))

    def TUPLE1(self, _: Any) -> None:
        self.stack.append((self.pop(),))

    def TUPLE2(self, _: Any) -> None:
        b, a = self.pop(), self.pop()
        self.stack.append((a, b))

    def TUPLE3(self, _: Any) -> None:
        c, b, a = self.pop(), self.pop(), self.pop()
        self.stack.append((a, b, c))

    def APPEND(self, _: Any) -> None:
        value = self.pop()
        self.top(list).append(value)

    def APPENDS(self, _: Any) -> None:
        values = self.to_mark()
        self.top(list).extend(values)

    def SETITEM(self, _: Any) -> None:
        value, name = self.pop(), self.pop()
        self.top(dict)[key(name)] = value

    def SETITEMS(self, _: Any) -> None:
        values = self.to_mark()
        target = self.top(dict)
        for name, value in zip(values[::2], values[1::2], strict=True):
            target[key(name)] = value

    def ADDITEMS(self, _: Any) -> None:
        values = self.to_mark()
        self.top(set).update(map(key, values))

    def FROZENSET(self, _: Any) -> None:
        self.stack.append(frozenset(map(key, self.to_mark())))

    def BINPUT(self, index: int) -> None:
        value = self.pop()
        self.memo[index] = value
        self.stack.append(value)

    LONG_BINPUT = BINPUT

    def MEMOIZE(self, _: Any) -> None:
        self.BINPUT(len(self.memo))

    def BINGET(self, index: int) -> None:
        if index not in self.memo:
            raise Damage("its pickle refers to what it does not hold")
        self.stack.append(self.memo[index])

    LONG_BINGET = BINGET

    def GLOBAL(self, names: str) -> None:
        module, _, name = names.partition(" ")
        self.stack.append(self.find(module, name))

    def STACK_GLOBAL(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        self.stack.append(self.find(text(module), text(name)))

    def BINPERSID(self, _: Any) -> None:
        self.stack.append(self.persistent(self.pop()))

    def REDUCE(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if type(arguments) is not tuple:
            raise Damage("its pickle calls something with what is no tuple")
        for argument in arguments:
            self.spend(argument)
        self.stack.append(self.call(function, arguments))

    def NEWOBJ(self, _: Any) -> None:
        arguments, cls = self.pop(), self.pop()
        if cls is OrderedDict and arguments == ():
            self.stack.append(OrderedDict())
            return
        self.stack.append(self.call(_New(cls), arguments))

    def BUILD(self, _: Any) -> None:
        state = self.pop()
        if not self.stack:
            raise Damage("its pickle takes more than it gave")
        for part in state if type(state) is tuple else (state,):
            self.spend(part)
        self.build(self.stack[-1], state)


class _New:
    """Stands for ``cls.__new__``."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
