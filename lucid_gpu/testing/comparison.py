"""`assert_close`: values, dtype, device, layout and shape, with PyTorch's sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.autograd.jacobians import host, xp
from lucid_gpu.ops.creation import as_tensor
from lucid_gpu.tensor import Tensor

_TOLERANCES = {  # relative, absolute
    dt.float16: (1e-3, 1e-5),
    dt.bfloat16: (1.6e-2, 1e-5),
    dt.float32: (1.3e-6, 1e-5),
    dt.float64: (1e-7, 1e-7),
    dt.complex64: (1.3e-6, 1e-5),
    dt.complex128: (1e-7, 1e-7),
}


_NUMBERS = (bool, int, float, complex)
_COMPARED = (Tensor, *_NUMBERS)  # as they are; other arrays as tensors


def tolerances(*types: dt.dtype) -> tuple[float, float]:
    """The default tolerances of the coarsest of some types: relative, absolute."""
    pairs = [_TOLERANCES.get(d, (0.0, 0.0)) for d in types]
    return max(r for r, _ in pairs), max(a for _, a in pairs)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Parameters
    ----------
    actual, expected : Tensor, number, or sequences and mappings of them
    rtol, atol : float, optional
        Both or neither; by default those of the dtype.
    equal_nan : bool
        Whether two NaNs are close.
    check_device, check_dtype, check_layout, check_stride : bool
        Whether these must be equal too; strides of tensors that are not sparse.
    msg : str or callable, optional
        The error's text instead of the usual one, or a function of that.

    Raises
    ------
    AssertionError
        If something differs; it says what, by how much and where.
    ValueError
        If only one of ``rtol`` and ``atol`` is given.
    TypeError
        For values that cannot be compared.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and "
            f"atol={atol}"
        )
    checks = {
        "device": check_device,
        "dtype": check_dtype,
        "layout": check_layout,
        "stride()": check_stride,
    }
    for path, a, b in _pairs(actual, expected, ""):
        words = _difference(a, b, rtol, atol, equal_nan, [n for n, on in checks.items() if on])
        if words is not None:
            words += f"\n\nThe failure occurred for item {path}" if path else ""
            raise AssertionError(msg(words) if callable(msg) else msg or words)


def _pairs(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise AssertionError(
                f"The keys of the mappings do not match: {sorted(map(repr, a))} and "
                f"{sorted(map(repr, b))}"
            )
        for key in a:
            yield from _pairs(a[key], b[key], f"{path}[{key!r}]")
    elif _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            raise AssertionError(f"The length of the sequences mismatch: {len(a)} != {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _pairs(x, y, f"{path}[{i}]")
    elif isinstance(a, xp.generic) and isinstance(b, xp.generic):
        yield path, a.item(), b.item()
    elif hasattr(a, "__array__") and type(a) is type(b) and not isinstance(a, _COMPARED):
        yield path, as_tensor(a), as_tensor(b)
    else:
        yield path, a, b


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _difference(
    a: Any, b: Any, rtol: float | None, atol: float | None, equal_nan: bool, same: Sequence[str]
) -> str | None:
    """What is wrong with two leaves of a comparison; None where they are close."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return tensor_difference(a, b, rtol, atol, equal_nan, same)
    if a is None and b is None:
        return None
    if not isinstance(a, _NUMBERS) or not isinstance(b, _NUMBERS):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}."
        )
    if rtol is None or atol is None:
        rtol, atol = tolerances(*[_wide(x) for x in (a, b)])
    return number_difference(a, b, rtol, atol, equal_nan)


def number_difference(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> str | None:
    """What is wrong with two numbers; None where they are close."""
    if not (rtol or atol) and isinstance(a, int) and isinstance(b, int):
        close = a == b  # float64 does not tell all of them apart
    else:
        close = bool(xp.isclose(xp.asarray(a), xp.asarray(b), rtol, atol, equal_nan))
    return None if close else number_words(a, b, rtol, atol)


def number_words(a: Any, b: Any, rtol: float, atol: float, name: str = "Scalars") -> str:
    """That two numbers differ, and by how much."""
    words = f"{name} are not {_word(rtol, atol)}!\n\nExpected {b} but got {a}.\n"
    up_to = [f" (up to {most} allowed)" if rtol or atol else "" for most in (atol, rtol)]
    return (
        f"{words}Absolute difference: {abs(a - b)}{up_to[0]}\n"
        f"Relative difference: {abs(a - b) / abs(b) if b else float('inf')}{up_to[1]}"
    )


def _word(rtol: float, atol: float) -> str:
    return "close" if rtol or atol else "equal"


def _wide(number: Any) -> dt.dtype:
    return {bool: dt.bool, int: dt.int64, float: dt.float64, complex: dt.complex128}[type(number)]


def tensor_difference(
    a: Tensor,
    b: Tensor,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    same: Sequence[str],
) -> str | None:
    """What is wrong with two tensors, of which ``same`` names what must be equal beside shapes."""
    for name in ("shape", *same):
        mine, other = _attribute(a, name), _attribute(b, name)
        if mine != other:
            return f"The values for attribute {name!r} do not match: {mine} != {other}."
    if rtol is None or atol is None:
        rtol, atol = tolerances(a.dtype, b.dtype)
    if a.is_meta or b.is_meta:  # without elements
        return None
    if not a.ndim:
        return number_difference(a.item(), b.item(), rtol, atol, equal_nan)
    a, b = a.to_dense(), b.to_dense()
    if not (rtol or atol) and a.dtype.category < 2 and b.dtype.category < 2:
        close = (a == b.to(a.device)).cpu().numpy()  # float64 does not tell all of them apart
        return None if close.all() else array_words(host(a), host(b), close, rtol, atol)
    return array_difference(host(a), host(b), rtol, atol, equal_nan)


def _attribute(tensor: Tensor, name: str) -> Any:
    if name != "stride()":
        return getattr(tensor, name)
    return None if tensor._is_sparse else tensor.stride()


def array_difference(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> str | None:
    """What is wrong with two host arrays of one shape; None where they are close."""
    close = xp.isclose(a, b, rtol, atol, equal_nan)
    return None if close.all() else array_words(a, b, close, rtol, atol)


def array_words(
    a: Any, b: Any, close: Any, rtol: float, atol: float, name: str = "Tensor-likes"
) -> str:
    """That two host arrays differ where ``close`` says so, by how much and where most."""
    with xp.errstate(all="ignore"):
        absolute = xp.where(close, 0.0, abs(a - b))
        relative = xp.where(close, 0.0, absolute / abs(b))
    wrong = int((~close).sum())
    tail = " ({} allowed)" if rtol or atol else ""
    return (
        f"{name} are not {_word(rtol, atol)}!\n\n"
        f"Mismatched elements: {wrong} / {close.size} ({100 * wrong / close.size:.1f}%)\n"
        f"Greatest absolute difference: {_greatest(absolute)}{tail.format(f'up to {atol}')}\n"
        f"Greatest relative difference: {_greatest(relative)}{tail.format(f'up to {rtol}')}"
    )


def _greatest(differences: Any) -> str:
    index = xp.unravel_index(int(differences.argmax()), differences.shape)
    return f"{differences[index]} at index {tuple(int(i) for i in index)}"


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """PyTorch's older `assert_close`: types may differ, and the default tolerances are wider."""
    actual = actual if isinstance(actual, Tensor) else as_tensor(actual)
    expected = expected if isinstance(expected, Tensor) else as_tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        pairs = [_WIDER.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = max(r for r, _ in pairs), max(a for _, a in pairs)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        msg=msg or None,
    )


_WIDER = {dt.float16: (1e-3, 1e-3), dt.float32: (1e-4, 1e-5), dt.float64: (1e-5, 1e-8)}
