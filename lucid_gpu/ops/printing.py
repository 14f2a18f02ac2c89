"""How tensors print: PyTorch's layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.devices.port import READ_ONCE
from lucid_gpu.tensor import Tensor

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]

OPENING = "tensor("


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = _Options()
_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print; what is None stays as it is.

    Parameters
    ----------
    precision : int
        Digits after the point.
    threshold : int
        Elements above which a tensor is abbreviated.
    edgeitems : int
        Elements kept at each end of an abbreviated dimension.
    linewidth : int
        Characters a line.
    profile : {"default", "short", "full"}
        Set the four above at once.
    sci_mode : bool, optional
        Write exponents always or never; None decides for each tensor.
    """
    wanted = dict(_PROFILES[profile]) if profile is not None else {}
    settings = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    wanted.update({name: value for name, value in settings.items() if value is not None})
    for name, value in wanted.items():
        setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options of `set_printoptions` as they are now."""
    return asdict(_options)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Other options within a ``with`` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# --- numbers --------------------------------------------------------------------------------------


class _Plain:
    """Integers and bools, right-aligned."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.width = max((len(str(v)) for v in values), default=1)

    def __call__(self, value: Any) -> str:
        return str(value).rjust(self.width)


class _Float:
    """Floats in one style: whole numbers, fixed point or exponents, by the finite nonzero ones."""

    def __init__(self, values: Sequence[float]) -> None:
        telling = [v for v in values if math.isfinite(v) and v != 0]
        self.whole = all(v == math.ceil(v) for v in telling)
        self.exponents = _wants_exponents(telling, self.whole)
        if _options.sci_mode is not None and telling:
            self.exponents = _options.sci_mode
        self.width = max((len(self.written(v)) for v in telling), default=1)

    def written(self, value: float) -> str:
        if self.exponents:
            return f"{value:.{_options.precision}e}"
        if not self.whole:
            return f"{value:.{_options.precision}f}"
        return f"{value:.0f}" + ("." if math.isfinite(value) else "")

    def __call__(self, value: float) -> str:
        return self.written(value).rjust(self.width)


def _wants_exponents(telling: Sequence[float], whole: bool) -> bool:
    if not telling:
        return False
    smallest, largest = min(map(abs, telling)), max(map(abs, telling))
    if largest / smallest > 1000 or largest > 1e8:
        return True
    return not whole and smallest < 1e-4


class _Complex:
    """Real and imaginary parts, each in a style of its own."""

    def __init__(self, values: Sequence[complex]) -> None:
        self.real = _Float([v.real for v in values])
        self.imaginary = _Float([v.imag for v in values])
        self.width = self.real.width + self.imaginary.width + 1

    def __call__(self, value: complex) -> str:
        imaginary = self.imaginary(value.imag).lstrip() + "j"
        sign = "" if imaginary[0] in "+-" else "+"
        return self.real(value.real) + sign + imaginary


_STYLES: dict[int, Any] = {0: _Plain, 1: _Plain, 2: _Float, 3: _Complex}


def number_format(values: Sequence[Any], d: dt.dtype) -> Any:
    """The style that numbers of a type are written in beside each other: a function."""
    return _STYLES[d.category](values)


# --- layout ---------------------------------------------------------------------------------------


def __repr__(self: Tensor) -> str:
    """The text of a tensor, which is realized, as PyTorch writes it."""
    kind = type(self)
    ours = kind.__module__.partition(".")[0] in ("lucid_gpu", "torch")  # by `install_as_torch`
    opening = OPENING if ours else f"{kind.__name__}("
    if self.device.type == "meta":
        return _with_suffixes(f"{opening}...", _suffixes(self), len(opening))
    backend(CPU).once("to print a tensor", READ_ONCE)
    array = self.detach().cpu().array
    if self.dtype.compute is not self.dtype:
        array = array.astype(self.dtype.compute.numpy)
    body = _values(array, self.dtype.category, len(opening)) if array.size else "[]"
    return _with_suffixes(opening + body, _suffixes(self), len(opening))


METHODS = (__repr__,)


def _values(array: Any, category: int, indent: int = len(OPENING)) -> str:
    outline = _outline(array, array.size > _options.threshold)
    number = _STYLES[category](list(_numbers(outline)))
    return _nested(outline, array.ndim, number, indent)


def _outline(array: Any, short: bool) -> Any:
    """The numbers to print as nested lists, None where a part is left out."""
    edge = _options.edgeitems
    extent = array.shape[0] if array.ndim else 0
    if not short or not array.ndim:
        return array.tolist()
    if extent <= 2 * edge:
        return [_outline(row, short) for row in array]
    ends = [*range(edge), *range(extent - edge, extent)]
    kept = [_outline(array[i], short) for i in ends]
    return [*kept[:edge], None, *kept[edge:]]


def _numbers(outline: Any) -> Iterator[Any]:
    if isinstance(outline, list):
        for part in outline:
            yield from _numbers(part)
    elif outline is not None:
        yield outline


def _nested(outline: Any, rank: int, number: Any, indent: int) -> str:
    if rank == 0:
        return str(number(outline))
    if rank == 1:
        return _row([" ..." if v is None else number(v) for v in outline], number.width, indent)
    parts = [
        "..." if part is None else _nested(part, rank - 1, number, indent + 1) for part in outline
    ]
    gap = "," + "\n" * (rank - 1) + " " * (indent + 1)
    return "[" + gap.join(parts) + "]"


def _row(words: Sequence[str], width: int, indent: int) -> str:
    """One innermost row, broken into lines."""
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [words[i : i + per_line] for i in range(0, len(words), per_line)]
    gap = ",\n" + " " * (indent + 1)
    return "[" + gap.join(", ".join(line) for line in lines) + "]"


def _suffixes(t: Tensor) -> list[str]:
    """What is said after the numbers: whatever is not the default."""
    no_data = t.device.type == "meta"
    empty = no_data or t.numel() == 0
    suffixes = []
    if t.device.type != "cpu":
        suffixes.append(f"device='{t.device}'")
    if empty and (no_data or t.ndim != 1):
        suffixes.append(f"size={tuple(t.shape)}")
    if shows_type(t.dtype, empty):
        suffixes.append(f"dtype={t.dtype}")
    return suffixes + history_of(t)


def shows_type(d: dt.dtype, empty: bool = False) -> bool:
    """Whether a type must be said, because neither the default nor the numbers show it."""
    usual: tuple[Any, ...] = (dt.get_default_dtype(),)
    if not empty:
        usual += (dt.scalar_type(1j), dt.int64, dt.bool)
    return d not in usual


def history_of(t: Tensor) -> list[str]:
    """What autograd knows of a tensor."""
    known = [] if t._wrapper is None else t._wrapper.level.shown(t)
    try:
        node = t.grad_fn
    except RuntimeError:  # of a view whose base was written, and that allows no such write
        return ["grad_fn=<Invalid>", *known]
    if node is not None:
        return [f"grad_fn=<{node.name()}>", *known]
    return ["requires_grad=True", *known] if t.requires_grad else known


def _with_suffixes(body: str, suffixes: Sequence[str], indent: int = len(OPENING)) -> str:
    room_left = _options.linewidth - (len(body) - body.rfind("\n") + 1)
    for suffix in suffixes:
        if len(suffix) + 2 > room_left:
            body += ",\n" + " " * indent + suffix
            room_left = _options.linewidth - indent - len(suffix)
        else:
            body += ", " + suffix
            room_left -= len(suffix) + 2
    return body + ")"
