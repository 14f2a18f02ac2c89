"""The check of docstrings finds what a public name does not say, and passes what says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from lucid_gpu import Tensor, exp
from lucid_gpu.ops.arguments import require_float, require_tensor
from tools import check_docstrings, reference
from tools.check_docstrings import Name


def _refuse(x: object) -> None:
    raise KeyError(x)


def silent(x: int) -> int:
    return x


def untyped(x, *, n=1):
    """Nothing."""


def shapeless(x: Tensor) -> Tensor:
    """The tensor."""
    return x


def shaped(x: Tensor) -> Tensor:
    """The tensor, ``(N, C)``."""
    return x


def elementwise(x: Tensor) -> Tensor:
    """Elementwise sine."""
    return x


def pointing(x: Tensor) -> Tensor:
    """See `lucid_gpu.sum`."""
    return x


def mentioning(x: Tensor) -> Tensor:
    """The tensor.

    Not what `lucid_gpu.sum` is.
    """
    return x


def raising(x: int) -> int:
    """A number."""
    if x < 0:
        raise ValueError(x)
    _refuse(x)
    return x


def named_in_errors(x: int) -> int:
    """A number; KeyError for zero.

    Raises
    ------
    ValueError
        For negative ones.
    """
    if x < 0:
        raise ValueError(x)
    _refuse(x)
    return x


def guarded(x: Tensor) -> None:
    """Nothing, of any shape."""
    require_tensor("guarded", "x", 1, x)
    require_float("guarded", x)


def misnamed(x: int, y: int) -> int:
    """A number.

    Parameters
    ----------
    x, z : int
        The first two,
        of three.
    """
    return x + y


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (silent, ["has no docstring"]),
        (untyped, ["gives no type for x, n, the result"]),
        (shapeless, ["takes or gives tensors and says nothing of their shapes"]),
        (shaped, []),
        (elementwise, []),
        (pointing, []),
        (mentioning, ["takes or gives tensors and says nothing of their shapes"]),
        (raising, ["raises KeyError, ValueError and does not say so"]),
        (named_in_errors, []),
        (guarded, ["raises NotImplementedError and does not say so"]),
        (misnamed, ["describes z, which it does not take"]),
        (exp, []),  # made by a factory
    ],
)
def test_a_function(function: Callable[..., Any], wanted: list[str]) -> None:
    name = Name("lucid_gpu", function.__name__, function)
    assert list(check_docstrings.breaches(name)) == wanted


class Base:
    """A class."""

    def scaled(self, x: Tensor) -> Tensor:
        """An element times two; ValueError for none."""
        raise NotImplementedError


class Derived(Base):
    """One with a forward of shape ``(N, C)``."""

    def __init__(self, n, size: int = 1) -> None:
        if not size:
            raise IndexError(size)

    def scaled(self, x: Tensor) -> Tensor:
        raise ValueError(x)

    def forward(self, x: Tensor) -> Tensor:
        return x

    @property
    def grown(self) -> Tensor:
        """The tensor."""
        return Tensor()

    @staticmethod
    def made(x) -> None:
        """Nothing."""


class Pair(NamedTuple):
    """Two numbers."""

    x: int
    y: int


def of_class(owner: type) -> dict[str, list[str]]:
    names = check_docstrings._of_class("lucid_gpu", owner.__name__, owner)
    return {name.path: list(check_docstrings.breaches(name)) for name in names}


def test_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    name = Name("lucid_gpu", "Derived", Derived)
    assert list(check_docstrings.breaches(name)) == [
        "gives no type for n",
        "raises IndexError and does not say so",
    ]
    for member in vars(Derived).values():  # other packages' methods are not held to anything
        if callable(member):
            monkeypatch.setattr(member, "__module__", "lucid_gpu.here", raising=False)
    monkeypatch.setattr(Derived.made, "__module__", "lucid_gpu.here")
    monkeypatch.setattr(vars(Derived)["grown"].fget, "__module__", "lucid_gpu.here")
    assert of_class(Derived) == {
        "Derived.forward": [],
        "Derived.grown": ["takes or gives tensors and says nothing of their shapes"],
        "Derived.made": ["gives no type for x"],
        "Derived.scaled": [],
    }
    assert of_class(Base) == {}


def test_a_named_tuple_is_python_s() -> None:
    assert list(check_docstrings.breaches(Name("lucid_gpu", "Pair", Pair))) == []
    assert of_class(Pair) == {}


def test_what_is_wrong_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Name("lucid_gpu", f.__name__, f) for f in (shaped, silent)]
    monkeypatch.setattr(check_docstrings, "names", lambda: iter(found))
    assert check_docstrings.main() == 1
    assert capsys.readouterr().err == "check_docstrings: lucid_gpu.silent has no docstring\n"
    del found[1]
    assert check_docstrings.main() == 0


def test_members_of_namespaces_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "NAMESPACES", ("lucid_gpu.nn", "lucid_gpu.linalg"))
    paths = {name.full for name in check_docstrings.names()}
    assert {"lucid_gpu.nn.Linear.forward", "lucid_gpu.linalg.qr"} <= paths
    assert "lucid_gpu.nn.ReLU.function" not in paths  # what it calls
