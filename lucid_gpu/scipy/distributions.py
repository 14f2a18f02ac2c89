"""Distributions of `scipy.stats`: a table's formulas of the standard one become its methods."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lucid_gpu.devices import scipy
from lucid_gpu.func.trees import flatten
from lucid_gpu.ops.elementwise import where
from lucid_gpu.scipy.rows import ROWS, Row, dispatched, of_elements
from lucid_gpu.tensor import Tensor

Formula = Callable[..., Tensor]


class Distribution:
    """A distribution as SciPy has it: methods of values and parameters; a call fixes these.

    Parameters
    ----------
    name : str
        Such as ``norm``.
    methods : mapping
        Functions of tensors by their names. All others are SciPy's own, and take arrays.
    """

    def __init__(self, name: str, methods: Mapping[str, Callable[..., Any]]) -> None:
        self._name = name
        self._methods = tuple(methods)
        parameters = inspect.signature(next(iter(methods.values()))).parameters.values()
        self.__signature__ = inspect.Signature(list(parameters)[1:])
        for method, function in methods.items():
            setattr(self, method, dispatched(f"stats.{name}.{method}", function))

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        return Frozen(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(scipy.function("cpu", f"stats.{self._name}"), name)


class Frozen:
    """A distribution with its parameters fixed."""

    def __init__(self, of: Distribution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._of, self._args, self._kwargs = of, args, kwargs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            self._method(name) if name in self._of._methods else getattr(self._scipys(name), name)
        )

    def _method(self, name: str) -> Callable[[Any], Any]:
        def method(x: Any) -> Any:
            if any(isinstance(leaf, Tensor) for leaf in flatten((x, self._args, self._kwargs))[0]):
                return getattr(self._of, name)(x, *self._args, **self._kwargs)
            return getattr(self._scipys(name), name)(x)

        return method

    def __call__(self, points: Any) -> Any:
        return self.evaluate(points)

    def _scipys(self, name: str) -> Any:
        """Return SciPy's distribution of these parameters, whose method `name` is wanted."""
        if any(isinstance(leaf, Tensor) for leaf in flatten((self._args, self._kwargs))[0]):
            raise TypeError(
                f"stats.{self._of._name}(...).{name} has no derivative; make the distribution of "
                "numbers or arrays, such as t.detach().numpy()"
            )
        return scipy.function("cpu", f"stats.{self._of._name}")(*self._args, **self._kwargs)


class Law(NamedTuple):
    """A standard distribution, of which others are moved and stretched.

    Attributes
    ----------
    shapes : str
        Its parameters' names, by spaces.
    logpdf, cdf, ppf : callable
        Functions of the values and shapes. `logpdf` of a discrete one is that of whole numbers,
        and it has no `ppf`: SciPy's own takes arrays.
    sf, logcdf, logsf, isf : callable, optional
        Those that are not ``cdf(-x)``, ``log(cdf)``, ``log(sf)`` and ``-ppf``.
    low, high : float or callable
        Where its values end; a function of the shapes.
    inner : float
        A value between.
    valid : callable, optional
        Of the shapes: whether there is such a distribution. Without it they are positive.
    """

    shapes: str
    logpdf: Formula
    cdf: Formula
    ppf: Formula | None
    sf: Formula | None = None
    logcdf: Formula | None = None
    logsf: Formula | None = None
    isf: Formula | None = None
    low: float = -math.inf
    high: float | Formula = math.inf
    inner: float = 0.0
    valid: Formula | None = None

    def ends(self, *shapes: Tensor) -> tuple[float, Any]:
        """Return where the values end."""
        return self.low, self.high(*shapes) if callable(self.high) else self.high

    def checked(self, x: Tensor, *shapes: Tensor) -> Tensor:
        """Return `x`, and NaN where there is no such distribution."""
        valid = [self.valid(*shapes)] if self.valid else [s > 0 for s in shapes]
        return functools.reduce(lambda y, good: where(good, y, math.nan), valid, x)


def _log_density(law: Law, discrete: bool) -> Formula:
    def density(x: Tensor, *shapes: Tensor) -> Tensor:
        low, high = law.ends(*shapes)
        inside = (x >= low).logical_and(x <= high)
        if discrete:
            inside = inside.logical_and(x == x.floor())
        values = law.logpdf(where(inside, x, law.inner), *shapes)
        return where(inside, values, where(x == x, -math.inf, x))

    return density


def _between(law: Law, discrete: bool, formula: Formula, below: float, above: float) -> Formula:
    """Return `formula` between the ends, `below` and `above` them."""

    def share(x: Tensor, *shapes: Tensor) -> Tensor:
        low, high = law.ends(*shapes)
        x = x.floor() if discrete else x
        inside = (x >= low).logical_and(x < high)
        values = formula(where(inside, x, law.inner), *shapes)
        return where(inside, values, where(x < low, below, where(x >= high, above, x)))

    return share


def _standard(law: Law, discrete: bool) -> dict[str, Formula]:
    """Return the methods of a standard distribution, as functions of values and shapes."""
    sf = law.sf or (lambda x, *shapes: law.cdf(-x, *shapes))
    logcdf = law.logcdf or (lambda x, *shapes: law.cdf(x, *shapes).log())
    symmetric = law.sf is None
    logsf = law.logsf or (
        (lambda x, *shapes: logcdf(-x, *shapes))
        if symmetric
        else (lambda x, *shapes: sf(x, *shapes).log())
    )
    between = functools.partial(_between, law, discrete)
    density, kind = _log_density(law, discrete), "pmf" if discrete else "pdf"
    return {
        f"log{kind}": density,
        kind: lambda x, *shapes: density(x, *shapes).exp(),
        "cdf": between(law.cdf, 0.0, 1.0),
        "sf": between(sf, 1.0, 0.0),
        "logcdf": between(logcdf, -math.inf, 0.0),
        "logsf": between(logsf, 0.0, -math.inf),
    }


def _inverses(law: Law) -> dict[str, Formula]:
    ppf = law.ppf
    if ppf is None:
        return {}
    return {"ppf": ppf, "isf": law.isf or (lambda q, *shapes: -ppf(q, *shapes))}


def discrete(name: str, law: Law) -> Any:
    """Enter a distribution of whole numbers: that of the table, moved by ``loc``."""

    def method(function: Formula) -> Formula:
        return lambda x, *rest: function(law.checked(x - rest[-1], *rest[:-1]), *rest[:-1])

    methods = {n: method(f) for n, f in _standard(law, True).items()}
    return _entered(name, law.shapes, "loc=0", {n: ("k", f) for n, f in methods.items()})


def continuous(name: str, law: Law) -> Any:
    """Enter a distribution: that of the table, stretched by ``scale`` and moved by ``loc``."""

    def forward(method: str, function: Formula) -> Formula:
        def of(x: Tensor, *rest: Tensor) -> Tensor:
            *shapes, loc, scale = rest
            scale = where(scale > 0, scale, math.nan)
            values = function(law.checked((x - loc) / scale, *shapes), *shapes)
            if method == "logpdf":
                return values - scale.log()
            return values / scale if method == "pdf" else values

        return of

    def inverse(function: Formula) -> Formula:
        def of(q: Tensor, *rest: Tensor) -> Tensor:
            *shapes, loc, scale = rest
            q = where((q >= 0).logical_and(q <= 1), law.checked(q, *shapes), math.nan)
            return function(q, *shapes) * where(scale > 0, scale, math.nan) + loc

        return of

    methods = {n: ("x", forward(n, f)) for n, f in _standard(law, False).items()}
    methods |= {n: ("q", inverse(f)) for n, f in _inverses(law).items()}
    return _entered(name, law.shapes, "loc=0 scale=1", methods)


def _entered(name: str, shapes: str, moved: str, methods: dict[str, tuple[str, Formula]]) -> Any:
    made = {
        method: of_elements(f"stats.{name}.{method}", f"{first} {shapes} {moved}", function)
        for method, (first, function) in methods.items()
    }
    by = " ".join([next(iter(methods.values()))[0], shapes, moved]).replace("=0", "")
    ROWS[f"stats.{name}"] = Row(
        f"stats.{name}",
        "ops",
        " ".join(by.replace("=1", "").split()),
        refused="methods " + " ".join(methods),
    )
    return Distribution(name, made)
