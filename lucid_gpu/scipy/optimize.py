"""`scipy.optimize` with derivatives: fed by gradients, with solutions that have some.

With tensors a function is called with tensors and written with the functions of `lucid_gpu` or
`lucid_gpu.numpy`; SciPy's steps are taken on the host in float64, with exact slopes. A solution has
derivatives by tensors in `args` and by those that the function closes over, by the implicit
function theorem; where one may be asked for, the solution is checked: see `implicit`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu import linalg
from lucid_gpu.devices import scipy
from lucid_gpu.func.transforms import grad
from lucid_gpu.numpy.operands import as_tensor
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.elementwise import where
from lucid_gpu.optim.minimize import scipy_minimize
from lucid_gpu.scipy.callbacks import called_with_arrays, given, on_host
from lucid_gpu.scipy.implicit import Equation, jacobian, solved
from lucid_gpu.scipy.rows import composed, others
from lucid_gpu.tensor import Tensor

__all__ = ["brentq", "curve_fit", "fixed_point", "fsolve", "least_squares", "minimize", "newton"]
__all__ += ["root", "root_scalar"]

ROOTS = "where the Jacobian is regular"
MINIMA = "where the Hessian is regular, and no gradient is zero at a bound that holds"
OURS = "jac, hess, hessp: they are computed"


def _library() -> Any:
    return scipy.module("cpu", "optimize")


def _of_tensors(name: str, function: Callable[..., Any], put: Callable[[Any], Any]) -> Any:
    """The user's function of ``(x, *args)`` as one of ``(x, *tensors)``; it may return a list."""

    def called(x: Tensor, *tensors: Tensor) -> Tensor:
        value = as_tensor(function(x, *put(tensors)), x)
        if value.dtype.is_complex:
            raise TypeError(f"scipy.{name}: the function must return real numbers")
        return value.to(dt.float64)

    return called


def _as_many(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function`, which must give as many values as there are unknowns."""

    def called(x: Tensor, *tensors: Tensor) -> Tensor:
        value = function(x, *tensors)
        if value.numel() != x.numel():
            raise ValueError(
                f"scipy.{name}: the function must return as many numbers as x has, "
                f"{x.numel()}, got {value.numel()}"
            )
        return value.reshape(x.shape)

    return called


def _pair_for_scipy(name: str, function: Callable[..., Tensor], device: Any, tensors: Any) -> Any:
    """The function and its Jacobian by its first argument, of arrays."""
    arrays = [t.array for t in tensors]
    both = (function, jacobian(function))
    return [called_with_arrays(name, f, device, arrays, closed=False) for f in both]


# --- equations ------------------------------------------------------------------------------------


@composed("optimize", ROOTS, by="args", refused=OURS)
def root(
    fun: Callable[..., Any],
    x0: Any,
    args: Any = (),
    method: str = "hybr",
    tol: float | None = None,
    callback: Any = None,
    options: Any = None,
) -> Any:
    """Solve ``fun(x, *args) = 0`` for a vector `x`.

    Parameters
    ----------
    fun : callable
        Of an ``(n,)`` tensor and `args`; returns a tensor of n numbers or a list.
    x0 : ``(n,)`` Tensor
        Where to begin; a solution has no derivative by it.
    args : tuple
        Further arguments: tensors of any shape, and others.
    method, tol, callback, options
        As in SciPy; "hybr" and "lm" are given the Jacobian.

    Returns
    -------
    OptimizeResult
        SciPy's, in which ``x`` is a tensor.

    Raises
    ------
    RuntimeError
        Where a derivative may be asked for, and what SciPy found has none: it is no solution, or
        the Jacobian is singular there.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.scipy import optimize
    >>> a = lucid_gpu.tensor([2.0, 9.0], dtype=lucid_gpu.float64, requires_grad=True)
    >>> found = optimize.root(lambda x, a: x * x - a, lucid_gpu.ones(2), args=(a,))
    >>> found.x.sum().backward()
    >>> found.x.round(decimals=6).tolist(), a.grad.round(decimals=6).tolist()  # 1 / (2 sqrt(a))
    ([1.414214, 3.0], [0.353553, 0.166667])
    """
    settings = {"method": method, "tol": tol, "callback": callback, "options": options}
    return _root("optimize.root", fun, x0, args, method in ("hybr", "lm"), settings)


def _root(name: str, fun: Any, x0: Any, args: Any, slopes: bool, settings: dict[str, Any]) -> Any:
    g = given(name, (x0,), args)
    residual = _as_many(name, _of_tensors(name, fun, g.put))
    kept: list[Any] = []

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        drive, slope = _pair_for_scipy(name, residual, g.device, tensors)
        jac = {"jac": slope} if slopes else {}
        kept.append(_library().root(drive, on_host(start), **jac, **settings))
        return kept[-1].x

    x = solved(Equation(name, residual, solve), g.tensors[0].reshape(-1), g.tensors[1:])
    kept[0].update(x=x.to(g.dtype))
    return kept[0]


@composed("optimize", ROOTS, by="args", refused="fprime: it is computed; full_output")
def fsolve(func: Callable[..., Any], x0: Any, args: Any = (), xtol: float = 1.49012e-08) -> Tensor:
    """Return a solution of ``func(x, *args) = 0``; see `root`."""
    settings = {"method": "hybr", "options": {"xtol": xtol}}
    x: Tensor = _root("optimize.fsolve", func, x0, args, True, settings).x
    return x


@composed("optimize", ROOTS, by="args")
def fixed_point(
    func: Callable[..., Any],
    x0: Any,
    args: Any = (),
    xtol: float = 1e-08,
    maxiter: int = 500,
    method: str = "del2",
) -> Tensor:
    """Return `x` with ``func(x, *args) = x``, of the shape of `x0`; see `root`."""
    name = "optimize.fixed_point"
    g = given(name, (x0,), args)
    function = _as_many(name, _of_tensors(name, func, g.put))

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        drive = called_with_arrays(name, function, g.device, [t.array for t in tensors], False)
        return _library().fixed_point(
            drive, on_host(start), xtol=xtol, maxiter=maxiter, method=method
        )

    equation = Equation(name, lambda x, *tensors: x - function(x, *tensors), solve)
    return solved(equation, g.tensors[0], g.tensors[1:]).to(g.dtype)


def _scalar(name: str, f: Any, start: Any, args: Any, find: Callable[..., Any]) -> Tensor:
    """A root of a function of one number, which `find` finds of one of floats."""
    g = given(name, (start,), args)
    function = _as_many(name, _of_tensors(name, f, g.put))

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        drive = called_with_arrays(name, function, g.device, [t.array for t in tensors], False)
        return find(lambda x: float(drive(x)))

    equation = Equation(name, function, solve)
    return solved(equation, g.tensors[0].reshape(()), g.tensors[1:]).to(g.dtype)


@composed("optimize", ROOTS, by="args", refused="full_output")
def brentq(
    f: Callable[..., Any],
    a: float,
    b: float,
    args: Any = (),
    xtol: float = 2e-12,
    rtol: float = 8.881784197001252e-16,
    maxiter: int = 100,
) -> Tensor:
    """Return the root of ``f(x, *args)``, a 0-d tensor, between the numbers `a` and `b`.

    See `root`; ValueError where `f` has one sign at both.
    """
    settings = {"xtol": xtol, "rtol": rtol, "maxiter": maxiter}
    ends = float(a), float(b)
    find = lambda f: _library().brentq(f, *ends, **settings)  # noqa: E731
    return _scalar("optimize.brentq", f, ends[0], args, find)


@composed("optimize", ROOTS, by="args", refused="fprime, fprime2; arrays of roots; full_output")
def newton(
    func: Callable[..., Any],
    x0: Any,
    args: Any = (),
    tol: float = 1.48e-08,
    maxiter: int = 50,
    x1: float | None = None,
    rtol: float = 0.0,
) -> Tensor:
    """Return a root of ``func(x, *args)``, a 0-d tensor, by the secant method from the number `x0`.

    See `root`.
    """
    settings = {"tol": tol, "maxiter": maxiter, "x1": x1, "rtol": rtol}
    find = lambda f: _library().newton(f, float(x0), **settings)  # noqa: E731
    return _scalar("optimize.newton", func, float(x0), args, find)


@composed("optimize", ROOTS, by="args", refused="fprime, fprime2")
def root_scalar(
    f: Callable[..., Any],
    args: Any = (),
    method: str | None = None,
    bracket: Any = None,
    x0: float | None = None,
    x1: float | None = None,
    xtol: float | None = None,
    rtol: float | None = None,
    maxiter: int | None = None,
    options: Any = None,
) -> Any:
    """Solve ``f(x, *args) = 0`` for a number; SciPy's result, in which ``root`` is a 0-d tensor.

    See `root`.
    """
    settings: dict[str, Any] = {"method": method, "bracket": bracket, "x0": x0, "x1": x1}
    settings |= {"xtol": xtol, "rtol": rtol, "maxiter": maxiter, "options": options}
    kept: list[Any] = []

    def find(function: Callable[..., Any]) -> float:
        result = _library().root_scalar(function, **settings)
        kept.append(result)
        return float(result.root)

    start = bracket[0] if x0 is None else x0
    value = _scalar("optimize.root_scalar", f, start, args, find)
    kept[0].update(root=value)
    return kept[0]


# --- minima ---------------------------------------------------------------------------------------


@composed("optimize", MINIMA, by="args", refused=f"{OURS}; constraints, which have no derivative")
def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: Any = (),
    method: str | None = None,
    bounds: Any = None,
    tol: float | None = None,
    callback: Any = None,
    options: Any = None,
) -> Any:
    """Minimize ``fun(x, *args)`` over a vector `x`; the minimum has derivatives by `args`.

    `lucid_gpu.optim.scipy_minimize` gives SciPy the gradient and, for the methods that take it, the
    Hessian; it leaves parameters of a model at the minimum. Call this one to differentiate the
    minimum.

    Parameters
    ----------
    fun : callable
        Of an ``(n,)`` tensor and `args`; returns one real number.
    x0 : ``(n,)`` Tensor
        Where to begin; a minimum has no derivative by it.
    args : tuple
        Further arguments: tensors of any shape, and others. n^2 numbers are kept where one of them
        requires grad.
    method, bounds, tol, callback, options
        As in SciPy. An unknown at a bound has the derivative 0.

    Returns
    -------
    OptimizeResult
        SciPy's, in which ``x`` is a tensor.

    Raises
    ------
    RuntimeError
        Where a derivative may be asked for, and what SciPy found has none: it is no minimum, or
        the Hessian is singular there.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.scipy import optimize
    >>> a = lucid_gpu.tensor(3.0, dtype=lucid_gpu.float64, requires_grad=True)
    >>> found = optimize.minimize(lambda x, a: ((x - a * a) ** 2).sum(), lucid_gpu.ones(1), (a,))
    >>> found.x.sum().backward()
    >>> round(found.x.item(), 4), round(a.grad.item(), 4)  # a^2 and 2 a
    (9.0, 6.0)
    """
    name = "optimize.minimize"
    g = given(name, (x0,), args)
    function = _of_tensors(name, fun, g.put)
    kind = method or ("BFGS" if bounds is None else "L-BFGS-B")
    kept: list[Any] = []

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        x = tensor(on_host(start), device=g.device, requires_grad=True)
        settings = {"bounds": bounds, "tol": tol, "callback": callback, "options": options}
        kept.append(scipy_minimize(lambda: function(x, *tensors), x, kind, **settings))
        return kept[-1].x

    slope = grad(lambda x, *tensors: function(x, *tensors).reshape(()))
    residual = _held(slope, None if bounds is None else _ends(bounds))
    x = solved(Equation(name, residual, solve), g.tensors[0].reshape(-1), g.tensors[1:])
    kept[0].update(x=x.to(g.dtype))
    return kept[0]


def _ends(bounds: Any) -> tuple[Any, Any]:
    """The lowest and the highest values, NaN for none."""
    if hasattr(bounds, "lb"):
        return bounds.lb, bounds.ub
    low, high = zip(*bounds, strict=True)
    return np.array(low, np.float64), np.array(high, np.float64)


def _held(slope: Callable[..., Tensor], ends: Any) -> Callable[..., Tensor]:
    """The residual of a minimum within bounds: unknowns at a bound stay there."""
    if ends is None:
        return slope

    def residual(x: Tensor, *tensors: Tensor) -> Tensor:
        point = x.detach()
        low, high = (tensor(np.asarray(end, np.float64), device=x.device) for end in ends)
        at_bound = (point == low) | (point == high)
        return where(at_bound, x - point, slope(x, *tensors))

    return residual


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {  # of squares, as in SciPy
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * ((1 + z).sqrt() - 1),
    "huber": lambda z: where(z <= 1, z, 2 * z.clamp(min=1).sqrt() - 1),
    "cauchy": lambda z: z.log1p(),
    "arctan": lambda z: z.arctan(),
}


@composed("optimize", MINIMA, by="args", refused="jac: it is computed; functions for loss")
def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    bounds: Any = None,
    method: str = "trf",
    ftol: float | None = 1e-08,
    xtol: float | None = 1e-08,
    gtol: float | None = 1e-08,
    loss: str = "linear",
    f_scale: float = 1.0,
    max_nfev: int | None = None,
    args: Any = (),
) -> Any:
    """Minimize half the sum of squares of ``fun(x, *args)`` over a vector `x`; see `minimize`.

    Parameters
    ----------
    fun : callable
        Of an ``(n,)`` tensor and `args`; returns a vector or a list of residuals.
    x0, bounds, method, ftol, xtol, gtol, loss, f_scale, max_nfev, args
        As in SciPy. An unknown at a bound has the derivative 0.

    Returns
    -------
    OptimizeResult
        SciPy's, in which ``x`` is a tensor.
    """
    name = "optimize.least_squares"
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    g = given(name, (x0,), args)
    function = _of_tensors(name, fun, g.put)
    ends = (-np.inf, np.inf) if bounds is None else _pair(bounds)
    settings: dict[str, Any] = {"method": method, "ftol": ftol, "xtol": xtol, "gtol": gtol}
    settings |= {"loss": loss, "f_scale": f_scale, "max_nfev": max_nfev, "bounds": ends}
    kept: list[Any] = []

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        drive, slope = _pair_for_scipy(name, function, g.device, tensors)
        result = _library().least_squares(drive, on_host(start), jac=slope, **settings)
        kept.append(result)
        at_high = np.where(result.active_mask > 0, ends[1], result.x)
        return np.where(result.active_mask < 0, ends[0], at_high)

    def cost(x: Tensor, *tensors: Tensor) -> Tensor:
        squares = (function(x, *tensors).reshape(-1) / f_scale) ** 2
        return LOSSES[loss](squares).sum() * (f_scale**2 / 2)

    equation = Equation(name, _held(grad(cost), ends), solve)
    x = solved(equation, g.tensors[0].reshape(-1), g.tensors[1:])
    kept[0].update(x=x.to(g.dtype))
    return kept[0]


def _pair(bounds: Any) -> Any:
    return (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds


@composed("optimize", MINIMA, by="xdata ydata sigma", refused="bounds, method, full_output; jac")
def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the parameters of ``f(xdata, *parameters)`` nearest to `ydata`, and their covariances.

    Both have derivatives by the data; see `minimize`.

    Parameters
    ----------
    f : callable
        Of `xdata` and n 0-d tensors; returns a tensor of the shape of `ydata`.
    xdata : Tensor or array
    ydata : ``(m,)`` Tensor or array
    p0 : ``(n,)`` Tensor or array, optional
        Where to begin: at ones.
    sigma : ``(m,)`` Tensor or array, optional
        Standard deviations of `ydata`.
    absolute_sigma : bool
        Whether `sigma` is more than relative.
    """
    name = "optimize.curve_fit"
    if p0 is None:
        p0 = np.ones(len(inspect.signature(f).parameters) - 1)
    operands = (p0, xdata, ydata) if sigma is None else (p0, xdata, ydata, sigma)
    g = given(name, operands, ())
    start, x, y, *deviations = g.tensors

    def model(p: Tensor, x: Tensor) -> Tensor:
        return as_tensor(f(x, *p.unbind()), x).to(dt.float64)

    def misfits(p: Tensor, x: Tensor, y: Tensor, *deviations: Tensor) -> Tensor:
        apart = model(p, x) - y
        return apart / deviations[0] if deviations else apart

    def solve(start: Tensor, *tensors: Tensor) -> Any:
        x, y, *deviations = tensors
        drive, slope = _pair_for_scipy(name, model, g.device, [x])
        data = [on_host(v) for v in (x, y, start, *deviations)]
        return _library().curve_fit(
            lambda _, *p: drive(p), *data, jac=lambda _, *p: slope(p), absolute_sigma=absolute_sigma
        )[0]

    def cost(p: Tensor, *tensors: Tensor) -> Tensor:
        return (misfits(p, *tensors) ** 2).sum() / 2

    rest = (x, y, *deviations)
    p = solved(Equation(name, grad(cost), solve), start.reshape(-1), [*rest])
    slopes = jacobian(misfits)(p, *rest)
    covariances = linalg.inv(slopes.mT @ slopes)
    if not absolute_sigma:
        covariances = covariances * (2 * cost(p, *rest) / (slopes.shape[0] - slopes.shape[1]))
    return p.to(g.dtype), covariances.to(g.dtype)


__getattr__ = others("optimize", globals())
