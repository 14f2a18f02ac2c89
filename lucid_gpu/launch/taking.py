"""How one argument of a launch becomes fields of the argument block, or is refused.

A taker appends an argument's fields to a list. Refusals name the kernel and the parameter, say how
it is declared and what came.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from numbers import Real
from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.launch.launcher import Launcher
from lucid_gpu.launch.signature import NUMBERS, Parameter

Taker = Callable[[list[Any], Any, Launcher], None]

_LARGEST = {"e": 65520.0, "f": 2.0**128 - 2.0**103, "d": math.inf}  # what rounds to infinity
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def taker(kernel: str, parameter: Parameter, form: str | None) -> Taker:
    """The taker of a parameter; ``form`` has `struct`'s letters of one that is a structure.

    Raises
    ------
    ValueError
        For a type that is not a number and has no form.
    """
    if parameter.pointer:
        take = _pointer(kernel, parameter)
        return _strided(kernel, parameter, take) if parameter.dimensions else take
    if form is not None:
        return _structure(kernel, parameter, form)
    letter, d = NUMBERS[parameter.type]
    if d is not None and d.category >= 2:
        return _complex(kernel, parameter) if d.is_complex else _float(kernel, parameter, d)
    return _bool(kernel, parameter) if letter == "?" else _integer(kernel, parameter, letter)


def is_plain(parameter: Parameter) -> bool:
    """Whether `struct` packs an address or a number of this parameter, and refuses what is wrong.

    No structure.
    """
    if parameter.pointer:
        return not parameter.dimensions and element_type(parameter) is not None
    if exact_types(parameter) is not None:
        return True
    letter, _ = NUMBERS[parameter.type]
    return letter.lower() in _BITS and not _is_bfloat16(parameter)


def exact_types(parameter: Parameter) -> tuple[type, ...] | None:
    """The types that `struct` may be given for a parameter, where it would take too many."""
    letter, _ = ("", None) if parameter.pointer else NUMBERS.get(parameter.type, ("", None))
    if letter == "?":
        return (bool,)
    return (float, int) if letter in _LARGEST else None


def _is_bfloat16(parameter: Parameter) -> bool:
    """Whether it is packed as the bits that a taker finds."""
    _, d = NUMBERS[parameter.type]
    return d is not None and d.category >= 2


def form_of(kernel: str, parameter: Parameter, forms: dict[str, str]) -> str:
    """A parameter in `struct`'s letters.

    Raises
    ------
    ValueError
        For a type that is not a number and has no form.
    """
    if parameter.pointer:
        return "Q" + f"{parameter.dimensions}q" * 2 * bool(parameter.dimensions)
    if parameter.name in forms:
        return forms[parameter.name]
    if parameter.type not in NUMBERS:
        raise ValueError(
            f"{kernel}: {parameter.name} is declared {parameter.type!r}, which is no number; by "
            f"value a kernel takes {', '.join(NUMBERS)}"
        )
    return NUMBERS[parameter.type][0]


def declared(parameter: Parameter) -> str:
    """A parameter as its declaration says it."""
    kind = f"const {parameter.type}" if parameter.const else parameter.type
    if parameter.dimensions:
        return f"strided<{kind}, {parameter.dimensions}> {parameter.name}"
    return f"{kind}{'*' if parameter.pointer else ''} {parameter.name}"


def described(argument: Any) -> str:
    """An argument in words."""
    if hasattr(argument, "dtype") and hasattr(argument, "shape"):
        shape = list(argument.shape)
        return f"{type(argument).__name__} of {argument.dtype} and shape {shape}"
    return f"{argument!r} ({type(argument).__name__})"


def _refused(kernel: str, parameter: Parameter, argument: Any, why: str) -> TypeError:
    return TypeError(
        f"{kernel}: {parameter.name} is declared '{declared(parameter)}' and takes {why}; got "
        f"{described(argument)}"
    )


def _overflow(kernel: str, parameter: Parameter, argument: Any) -> OverflowError:
    return OverflowError(
        f"{kernel}: {parameter.name} is declared '{declared(parameter)}', which does not hold "
        f"{argument!r}"
    )


def _pointer(kernel: str, parameter: Parameter) -> Taker:
    expected = element_type(parameter)

    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        if argument is None:
            values.append(0)
            return
        try:
            if expected is None or argument.dtype == expected:
                values.append(launcher.backend.address(argument))
                return
        except (AttributeError, TypeError):
            pass
        kind = "" if expected is None else f" of {expected}"
        why = f"an array{kind} on {launcher.device}, or None"
        raise _refused(kernel, parameter, argument, why)

    return take


def _strided(kernel: str, parameter: Parameter, pointer: Taker) -> Taker:
    """An address, then the shape, then the strides in elements."""
    n = parameter.dimensions

    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        pointer(values, argument, launcher)
        if argument is None or argument.ndim != n:
            raise _refused(kernel, parameter, argument, f"an array of {n} dimensions")
        size = argument.itemsize
        if any(s % size for s in argument.strides):
            raise _refused(kernel, parameter, argument, "strides of whole elements")
        values += argument.shape
        values += [s // size for s in argument.strides]

    return take


def element_type(parameter: Parameter) -> Any:
    """The NumPy type of what a pointer points to, or None where NumPy has none."""
    known = NUMBERS.get(parameter.type)
    if known is None:
        return None
    letter, d = known
    if d is not None:
        return d.numpy
    return f"{'i' if letter.islower() else 'u'}{struct.calcsize('=' + letter)}"


def _structure(kernel: str, parameter: Parameter, form: str) -> Taker:
    packing = struct.Struct("=" + form)

    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        try:
            if not isinstance(argument, bytes):
                argument = packing.pack(*argument)
            values += packing.unpack(argument)
        except (struct.error, TypeError) as error:
            why = f"{packing.size} bytes, or numbers that fill '{form}'"
            raise _refused(kernel, parameter, argument, why) from error

    return take


def _integer(kernel: str, parameter: Parameter, letter: str) -> Taker:
    low, high = _limits(letter)

    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        try:
            number = operator.index(argument)
        except TypeError:
            raise _refused(kernel, parameter, argument, "an integer") from None
        if not low <= number <= high:
            raise _overflow(kernel, parameter, argument)
        values.append(number)

    return take


def _limits(letter: str) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    bits = _BITS[letter.lower()]
    if letter.islower():
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def _float(kernel: str, parameter: Parameter, d: dtype) -> Taker:
    letter = NUMBERS[parameter.type][0]
    bits_only = letter == "H"
    largest = _LARGEST["f" if bits_only else letter]

    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        if not isinstance(argument, (float, int, Real)):
            raise _refused(kernel, parameter, argument, "a number")
        number = float(argument)
        if largest <= abs(number) < math.inf:
            raise _overflow(kernel, parameter, argument)
        values.append(_bfloat16_bits(number) if bits_only else number)

    return take


def _bfloat16_bits(number: float) -> int:
    """To nearest, ties to even."""
    bits: int = struct.unpack("I", struct.pack("f", number))[0]
    if number != number:
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _complex(kernel: str, parameter: Parameter) -> Taker:
    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        if not isinstance(argument, (int, float, complex)):
            raise _refused(kernel, parameter, argument, "a number")
        number = complex(argument)
        values += (number.real, number.imag)

    return take


def _bool(kernel: str, parameter: Parameter) -> Taker:
    def take(values: list[Any], argument: Any, launcher: Launcher) -> None:
        if type(argument).__name__ not in ("bool", "bool_"):
            raise _refused(kernel, parameter, argument, "True or False")
        values.append(bool(argument))

    return take
