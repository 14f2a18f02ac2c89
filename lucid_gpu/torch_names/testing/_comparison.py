"""`torch.testing._comparison`: PyTorch's private file of `assert_close`, and its pairs."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from lucid_gpu import as_tensor
from lucid_gpu.autograd.jacobians import host
from lucid_gpu.dtypes import as_dtype
from lucid_gpu.tensor import Tensor
from lucid_gpu.testing.comparison import (
    array_words,
    assert_allclose,
    assert_close,
    number_difference,
    number_words,
    tensor_difference,
    tolerances,
)

__all__ = [
    "BooleanPair",
    "ErrorMeta",
    "NonePair",
    "NumberPair",
    "ObjectPair",
    "Pair",
    "TensorLikePair",
    "UnsupportedInputs",
    "assert_allclose",
    "assert_close",
    "default_tolerances",
    "get_tolerances",
    "make_scalar_mismatch_msg",
    "make_tensor_mismatch_msg",
    "not_close_error_metas",
    "originate_pairs",
]


class ErrorMeta(Exception):
    """What is wrong with a pair, before it is raised.

    Parameters
    ----------
    type : type of Exception
        What `to_error` makes.
    msg : str
    id : tuple
        Where in nested inputs the pair is.
    """

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(f"{msg} (raise ErrorMeta.to_error() of this)")
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The error; ``msg`` is its text, or makes it of the usual one."""
        if isinstance(msg, str):
            return self.type(msg)
        path = "".join(str([item]) for item in self.id)
        words = f"{self.msg}\n\nThe failure occurred for item {path}" if self.id else self.msg
        return self.type(words if msg is None else msg(words))


class UnsupportedInputs(Exception):
    """A pair does not compare such inputs: the next kind of pair is tried."""


def default_tolerances(
    *inputs: Any, dtype_precisions: dict[Any, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """The default tolerances of the coarsest of some tensors or types: relative, absolute.

    ``dtype_precisions`` is PyTorch's table by default. TypeError for other inputs.
    """
    types = [x.dtype if isinstance(x, Tensor) else as_dtype(x) for x in inputs]
    if dtype_precisions is None:
        return tolerances(*types)
    pairs = [dtype_precisions.get(d, (0.0, 0.0)) for d in types]
    return max(r for r, _ in pairs), max(a for _, a in pairs)


def get_tolerances(
    *inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """The tolerances given, or where both are None the default ones.

    ErrorMeta of a ValueError for one that is given without the other.
    """
    if (rtol is None) != (atol is None):
        raise ErrorMeta(
            ValueError,
            "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
            f"{'rtol' if rtol is None else 'atol'}.",
            id=id,
        )
    return default_tolerances(*inputs) if rtol is None or atol is None else (rtol, atol)


def _identified(identifier: str | Callable[[str], str] | None, default: str) -> str:
    return identifier(default) if callable(identifier) else identifier or default


def make_scalar_mismatch_msg(
    actual: Any,
    expected: Any,
    *,
    rtol: float,
    atol: float,
    identifier: str | Callable[[str], str] | None = None,
) -> str:
    """That two numbers differ, and by how much; ``identifier`` says what they are."""
    return number_words(actual, expected, rtol, atol, _identified(identifier, "Scalars"))


def make_tensor_mismatch_msg(
    actual: Tensor,
    expected: Tensor,
    matches: Tensor,
    *,
    rtol: float,
    atol: float,
    identifier: str | Callable[[str], str] | None = None,
) -> str:
    """That tensors differ where ``matches`` is False, by how much and where most."""
    close = host(matches).astype(bool)
    name = _identified(identifier, "Tensor-likes")
    return array_words(host(actual), host(expected), close, rtol, atol, name)


# --- pairs ----------------------------------------------------------------------------------------


class Pair(abc.ABC):
    """Two inputs and how they are compared; ``__init__`` raises `UnsupportedInputs` for others.

    Parameters
    ----------
    actual, expected : object
    id : tuple
        Where in nested inputs they are.
    **unknown_parameters
        Options of other kinds of pairs.
    """

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any
    ) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: Any) -> None:
        if not all(isinstance(one, cls) for one in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or self.id)

    def _fail_if(self, words: str | None) -> None:
        if words is not None:
            self._fail(AssertionError, words)

    @abc.abstractmethod
    def compare(self) -> None:
        """Raise `ErrorMeta` where the inputs differ."""

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Attributes, or names and values, that the text of a pair shows too."""
        return ()

    def __repr__(self) -> str:
        shown = ["id", "actual", "expected", *self.extra_repr()]
        pairs = [(one, getattr(self, one)) if isinstance(one, str) else one for one in shown]
        rows = [f"    {name}={value!s}," for name, value in pairs]
        return "\n".join([f"{type(self).__name__}(", *rows, ")"])


class ObjectPair(Pair):
    """Objects that are compared by ``==``."""

    def compare(self) -> None:
        """Raise `ErrorMeta` where they are unequal."""
        try:
            equal = self.actual == self.expected
        except Exception as error:
            words = f"{self.actual} == {self.expected} failed with:\n{error}."
            raise ErrorMeta(ValueError, words, id=self.id) from error
        self._fail_if(None if equal else f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """Inputs one of which is None."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if actual is not None and expected is not None:
            raise UnsupportedInputs
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        """Raise `ErrorMeta` unless both are None."""
        same = self.actual is self.expected
        self._fail_if(None if same else f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two truth values, Python's or NumPy's."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        super().__init__(bool(actual), bool(expected), **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return bool, np.bool_

    def compare(self) -> None:
        """Raise `ErrorMeta` where they differ."""
        same = self.actual is self.expected
        self._fail_if(None if same else f"Booleans mismatch: {self.actual} is not {self.expected}")


_NUMBER_TYPES = {
    int: as_dtype(int),
    float: as_dtype(float),
    complex: as_dtype(complex),
}


class NumberPair(Pair):
    """Two numbers, Python's or NumPy's.

    Parameters
    ----------
    actual, expected : int, float, complex or numpy.number
    id : tuple
    rtol, atol : float, optional
        Both or neither; by default those of the types.
    equal_nan : bool
        Whether two NaNs are close.
    check_dtype : bool
        Whether the types must be equal.
    """

    def __init__(
        self,
        actual: Any,
        expected: Any,
        *,
        id: tuple[Any, ...] = (),
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_dtype: bool = False,
        **other_parameters: Any,
    ) -> None:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        a, b = (x.item() if isinstance(x, np.number) else x for x in (actual, expected))
        super().__init__(a, b, id=id, **other_parameters)
        kinds = [_NUMBER_TYPES[next(k for k in _NUMBER_TYPES if isinstance(x, k))] for x in (a, b)]
        self.rtol, self.atol = get_tolerances(*kinds, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (*_NUMBER_TYPES, np.number)

    def compare(self) -> None:
        """Raise `ErrorMeta` unless they are close."""
        a, b = self.actual, self.expected
        if self.check_dtype and type(a) is not type(b):
            self._fail(AssertionError, f"The (d)types do not match: {type(a)} != {type(b)}.")
        self._fail_if(number_difference(a, b, self.rtol, self.atol, self.equal_nan))

    def extra_repr(self) -> Sequence[str]:
        """The settings."""
        return "rtol", "atol", "equal_nan", "check_dtype"


class TensorLikePair(Pair):
    """Two tensors, or things of one type that can be made tensors.

    Parameters
    ----------
    actual, expected : Tensor or array_like
    id : tuple
    allow_subclasses : bool
        Whether one type may be a subclass of the other.
    rtol, atol : float, optional
        Both or neither; by default those of the dtypes.
    equal_nan : bool
        Whether two NaNs are close.
    check_device, check_dtype, check_layout, check_stride : bool
        Whether these must be equal.
    """

    def __init__(
        self,
        actual: Any,
        expected: Any,
        *,
        id: tuple[Any, ...] = (),
        allow_subclasses: bool = True,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_device: bool = True,
        check_dtype: bool = True,
        check_layout: bool = True,
        check_stride: bool = False,
        **other_parameters: Any,
    ) -> None:
        a, b = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(a, b, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(a, b, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool
    ) -> tuple[Tensor, Tensor]:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not allow_subclasses and type(actual) is not type(expected)):
            raise UnsupportedInputs
        return self._to_tensor(actual), self._to_tensor(expected)

    def _to_tensor(self, tensor_like: Any) -> Tensor:
        if isinstance(tensor_like, Tensor):
            return tensor_like
        try:
            return as_tensor(tensor_like)
        except Exception as error:
            raise UnsupportedInputs from error

    def compare(self) -> None:
        """Raise `ErrorMeta` unless they are close and what is checked is equal."""
        checks = {"layout": self.check_layout, "stride()": self.check_stride}
        checks |= {"device": self.check_device, "dtype": self.check_dtype}
        same = [name for name, on in checks.items() if on]
        a, b, rtol, atol = self.actual, self.expected, self.rtol, self.atol
        self._fail_if(tensor_difference(a, b, rtol, atol, self.equal_nan, same))

    def extra_repr(self) -> Sequence[str]:
        """The settings."""
        checks = "check_device", "check_dtype", "check_layout", "check_stride"
        return "rtol", "atol", "equal_nan", *checks


def originate_pairs(
    actual: Any,
    expected: Any,
    *,
    pair_types: Sequence[type[Pair]],
    sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,),
    id: tuple[Any, ...] = (),
    **options: Any,
) -> list[Pair]:
    """The pairs of nested inputs, each of the first kind that takes its inputs.

    Parameters
    ----------
    actual, expected : object
    pair_types : sequence of type of Pair
    sequence_types, mapping_types : tuple of type
        What is compared element by element.
    id : tuple
        Where the inputs are.
    **options
        Of the pairs.

    Raises
    ------
    ErrorMeta
        Of an AssertionError for other lengths and keys, of a TypeError for what no pair takes.
    """
    settings = {"pair_types": pair_types, "sequence_types": sequence_types, **options}
    settings["mapping_types"] = mapping_types
    texts = isinstance(actual, str) or isinstance(expected, str)
    keys: Any
    if not texts and all(isinstance(one, sequence_types) for one in (actual, expected)):
        counts = len(actual), len(expected)
        if counts[0] != counts[1]:
            words = f"The length of the sequences mismatch: {counts[0]} != {counts[1]}"
            raise ErrorMeta(AssertionError, words, id=id)
        keys = range(counts[0])
    elif all(isinstance(one, mapping_types) for one in (actual, expected)):
        keys, others = set(actual), set(expected)
        if keys != others:
            raise ErrorMeta(
                AssertionError,
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(others - keys)}\n"
                f"Additional keys in the actual mapping: {sorted(keys - others)}",
                id=id,
            )
        with contextlib.suppress(TypeError):  # keys that have no order
            keys = sorted(keys)
    else:
        for kind in pair_types:
            with contextlib.suppress(UnsupportedInputs):
                return [kind(actual, expected, id=id, **options)]
        words = "No comparison pair was able to handle inputs of type "
        raise ErrorMeta(TypeError, f"{words}{type(actual)} and {type(expected)}.", id=id)
    inner = [originate_pairs(actual[k], expected[k], id=(*id, k), **settings) for k in keys]
    return [pair for pairs in inner for pair in pairs]


def not_close_error_metas(
    actual: Any,
    expected: Any,
    *,
    pair_types: Sequence[type[Pair]] = (ObjectPair,),
    sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,),
    **options: Any,
) -> list[ErrorMeta]:
    """What is wrong with each pair of nested inputs; none where all are close.

    The parameters are those of `originate_pairs`; what that raises is raised as an error.
    """
    settings = {"pair_types": pair_types, "sequence_types": sequence_types, **options}
    try:
        pairs = originate_pairs(actual, expected, mapping_types=mapping_types, **settings)
    except ErrorMeta as meta:
        raise meta.to_error() from None
    found = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as meta:
            found.append(meta)
    return found
