"""`scipy.integrate` with derivatives.

Functions that are integrated are called with tensors, may return lists of them, and are written
with the functions of `lucid_gpu` or `lucid_gpu.numpy`. SciPy drives on the host in float64, one
problem at a time; with tensors of a GPU each call of the function runs there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import scipy
from lucid_gpu.func.forward import jvp as pushed
from lucid_gpu.numpy.operands import as_tensor
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.record import full_tangents, record
from lucid_gpu.ops.shape import cat
from lucid_gpu.scipy.callbacks import (
    called_with_arrays,
    driven,
    given,
    on_host,
    one_by_one,
    pulled_by,
)
from lucid_gpu.scipy.ode import Flow, replayed, slope_of, states
from lucid_gpu.scipy.rows import composed, floats, others
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Call, batching, jvp
from lucid_gpu.tensor import Tensor

__all__ = ["cumulative_simpson", "cumulative_trapezoid", "odeint", "quad", "simpson", "solve_ivp"]
__all__ += ["trapezoid"]

CLOSED = "tensors with a derivative that the function reads and that are not in `args`"


# --- samples --------------------------------------------------------------------------------------


def _sampled(name: str, y: Any, x: Any, dx: Any, axis: int) -> tuple[Tensor, Tensor]:
    """Samples with their dimension last, and the steps between them, which broadcast with them."""
    if x is None:
        y, step = floats(name, {"y": y, "dx": dx})
        y = y.movedim(axis, -1)
        return y, step[..., None].expand(y.shape[-1] - 1) if step.ndim == 0 else step
    y, x = floats(name, {"y": y, "x": x})
    return y.movedim(axis, -1), (x if x.ndim == 1 else x.movedim(axis, -1)).diff(dim=-1)


@composed("integrate", by="y x dx")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Return the integral of samples `y` along `axis` by the trapezoidal rule.

    Parameters
    ----------
    y : Tensor
    x : Tensor, optional
        Where the samples are: as many as along `axis`, or of `y`'s shape.
    dx : float or Tensor
        The distance between samples where there is no `x`.
    axis : int
    """
    y, step = _sampled("integrate.trapezoid", y, x, dx, axis)
    return (step * (y[..., 1:] + y[..., :-1])).sum(-1) / 2


@composed("integrate", by="y x dx")
def cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Tensor:
    """Return the running integral of samples by the trapezoidal rule; see `trapezoid`.

    `initial` is None or 0, which is put first.
    """
    if initial not in (None, 0):
        raise ValueError(f"initial must be None or 0, got {initial!r}; add it to the result")
    y, step = _sampled("integrate.cumulative_trapezoid", y, x, dx, axis)
    found = (step * (y[..., 1:] + y[..., :-1])).cumsum(-1) / 2
    return _begun(found, initial).movedim(-1, axis)


def _begun(running: Tensor, initial: Any) -> Tensor:
    if initial is None:
        return running
    first = as_tensor(initial, running).to(running.dtype)
    return cat([first + 0 * running[..., :1], running + first], -1)


def _parabolas(y: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """For each three samples the integrals from the first to the second, and on to the third."""
    a, b = h[..., :-1], h[..., 1:]
    left, middle, right = y[..., :-2], y[..., 1:-1], y[..., 2:]

    def first(near: Tensor, far: Tensor, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        # of the parabola through u, v, w over the interval `near`, with `far` behind it
        ratio = near / (near + far)
        return near / 6 * ((3 - ratio) * u + (3 + near / far) * v - near / far * ratio * w)

    return first(a, b, left, middle, right), first(b, a, right, middle, left)


@composed("integrate", by="y x dx", refused="fewer than 2 samples")
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Return the integral of samples `y` along `axis` by Simpson's rule; see `trapezoid`.

    An even number of samples has its last interval from the parabola through the last three
    (Cartwright, Journal of Mathematical Sciences and Mathematics Education 12, 2017).
    """
    y, h = _sampled("integrate.simpson", y, x, dx, axis)
    n = y.shape[-1]
    if n < 3:
        if n < 2:
            raise ValueError(f"simpson needs at least 2 samples along axis {axis}, got {n}")
        return (h * (y[..., 1:] + y[..., :-1])).sum(-1) / 2
    left, right = _parabolas(y, h)
    total = (left + right)[..., ::2].sum(-1)
    return total if n % 2 else total + right[..., -1]


@composed("integrate", by="y x dx", refused="fewer than 3 samples")
def cumulative_simpson(
    y: Any, *, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Tensor:
    """Return the running integral of samples by Simpson's rule; see `trapezoid`.

    `initial` is put first and added to the rest.
    """
    y, h = _sampled("integrate.cumulative_simpson", y, x, dx, axis)
    n = y.shape[-1]
    if n < 3:
        raise ValueError(f"cumulative_simpson needs at least 3 samples along axis {axis}, got {n}")
    left, right = _parabolas(y, h)  # the interval i is the first of parabola i, or the last of i-1
    first = (np.arange(n - 1) % 2 == 0) & (np.arange(n - 1) < n - 2)
    parts = [left[..., i] if first[i] else right[..., i - 1] for i in range(n - 1)]
    running = cat([part[..., None] for part in parts], -1).cumsum(-1)
    return _begun(running, initial).movedim(-1, axis)


# --- quadrature -----------------------------------------------------------------------------------


class _Rule(NamedTuple):
    """An integrand of a number and tensors, how it is integrated, and the errors estimated."""

    integrand: Callable[..., Tensor]
    vector: bool
    options: dict[str, Any]
    errors: list[float]


@op
def _integral(a: Tensor, b: Tensor, rule: _Rule, *tensors: Tensor) -> Tensor:
    where = a.device

    def compute(a: Any, b: Any, *arrays: Any) -> Any:
        f = called_with_arrays("integrate.quad", rule.integrand, where, arrays)
        library = scipy.module("cpu", "integrate")
        quadrature = library.quad_vec if rule.vector else library.quad
        value, error = quadrature(f, float(a), float(b), **rule.options)[:2]
        rule.errors.append(float(error))
        return tensor(np.asarray(value), dtype=dt.float64, device=where).array

    array = driven("integrate.quad", compute, a, b, *tensors)
    inputs = (a, b, *tensors)
    result: Tensor = record("QuadBackward0", array, inputs, _quad_vjp, inputs, a.dtype, rule=rule)
    return result


def _ends(rule: _Rule, a: Tensor, b: Tensor, tensors: list[Tensor]) -> tuple[Any, Any]:
    """The integrand at the limits, which moves the integral; 0 where a limit is infinite."""
    values = []
    for end in (a, b):
        finite = bool(on_host(end.isfinite()))
        value = rule.integrand(end, *tensors) if finite else None
        values.append(value)
    return values[0], values[1]


def _quad_vjp(node: Any, g: Tensor) -> tuple[Any, ...]:
    a, b, *tensors = node.saved_values
    rule, needed = node.rule, node.needs_input_grad
    low, high = _ends(rule, a, b, tensors) if needed[0] or needed[1] else (None, None)
    ends = (None if low is None else -(g * low).sum(), None if high is None else (g * high).sum())
    by = [i for i, wanted in enumerate(needed[2:]) if wanted]
    slopes: list[Any] = [None] * len(tensors)
    if by:

        def integrand(x: Tensor, g: Tensor, *tensors: Tensor) -> Tensor:
            pull = pulled_by(lambda *every: rule.integrand(x, *every), tensors, by)[1]
            return cat([part.reshape(-1) for part in pull(g)])

        own = rule._replace(integrand=integrand, vector=True)
        parts = _integral(a, b, own, g, *tensors).split([tensors[i].numel() for i in by])
        for i, part in zip(by, parts, strict=True):
            slopes[i] = part.reshape(tensors[i].shape)
    return *ends, *slopes


@jvp(_quad_vjp)
def _quad_jvp(call: Call) -> list[Any]:
    a, b, *tensors = call.inputs
    along_a, along_b, *tangents = full_tangents(call)
    rule, count = call.attributes["rule"], len(tensors)
    low, high = _ends(rule, a, b, tensors)
    result = 0.0 * along_b
    if high is not None:
        result = result + high * along_b
    if low is not None:
        result = result - low * along_a
    if not count:
        return [result]

    def integrand(x: Tensor, *both: Tensor) -> Tensor:
        along = lambda *rest: rule.integrand(x, *rest)  # noqa: E731
        found: Tensor = pushed(along, both[:count], both[count:])[1]
        return found

    return [result + _integral(a, b, rule._replace(integrand=integrand), *tensors, *tangents)]


batching(_integral)(one_by_one)


@composed("integrate", by="a b args", refused=CLOSED)
def quad(
    func: Callable[..., Any],
    a: Any,
    b: Any,
    args: Any = (),
    epsabs: float = 1.49e-08,
    epsrel: float = 1.49e-08,
    limit: int = 50,
    points: Any = None,
) -> tuple[Tensor, float]:
    """Return the integral of ``func(x, *args)`` from `a` to `b`, and an estimate of its error.

    Its derivative by tensors in `args` is the integral of the derivative, to the same tolerances.

    Parameters
    ----------
    func : callable
        Of a 0-d tensor `x` and `args`; returns a 0-d tensor.
    a, b : float or Tensor
        The limits; infinite ones have no derivative.
    args : tuple
        Further arguments. RuntimeError where `func` reads other tensors that have derivatives.
    epsabs, epsrel, limit, points
        As in SciPy.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.scipy import integrate
    >>> rate = lucid_gpu.tensor(2.0, dtype=lucid_gpu.float64, requires_grad=True)
    >>> area, _ = integrate.quad(lambda x, r: (-r * x).exp(), 0, float("inf"), args=(rate,))
    >>> area.backward()
    >>> round(area.item(), 6), round(rate.grad.item(), 6)  # 1/r and -1/r^2
    (0.5, -0.25)
    """
    g = given("integrate.quad", (a, b), args)

    def integrand(x: Tensor, *tensors: Tensor) -> Tensor:
        found = as_tensor(func(x, *g.put(tensors)), x)
        if found.ndim:
            raise ValueError(
                f"scipy.integrate.quad: func must return a number, got {tuple(found.shape)} numbers"
            )
        return found.to(dt.float64)

    options = {"epsabs": epsabs, "epsrel": epsrel, "limit": limit}
    options |= {"points": points} if points is not None else {}
    rule = _Rule(integrand, False, options, [])
    low, high, *tensors = g.tensors
    value = _integral(low, high, rule, *tensors).to(g.dtype)
    return value, rule.errors[0]


# --- ordinary differential equations --------------------------------------------------------------


@composed("integrate", by="y0 args", refused=f"events, dense_output; complex states; {CLOSED}")
def solve_ivp(
    fun: Callable[..., Any],
    t_span: Any,
    y0: Any,
    method: Any = "RK45",
    t_eval: Any = None,
    args: Any = None,
    **options: Any,
) -> Any:
    """Solve ``dy/dt = fun(t, y, *args)``; the states have derivatives by `y0` and `args`.

    Parameters
    ----------
    fun : callable
        Of a 0-d tensor `t`, the state and `args`; returns a tensor of the state's shape or a list.
    t_span : pair of float
        The first and the last time.
    y0 : ``(n,)`` Tensor, real
    method : str or class
        As in SciPy; explicit and implicit ones.
    t_eval : array, optional
        The times at which to give the state. Without them a solver runs twice: first for its
        steps, which then are the times.
    args : tuple, optional
        Further arguments: tensors of any shape, and others.
    adjoint : {"continuous", "discrete"}
        By which equations derivatives go back. "continuous", the default, integrates the adjoint
        equation backward by `method` with the same tolerances, in memory that does not grow with
        the steps; its error is that of the tolerances, so that 1e-8 serves an optimizer better
        than SciPy's 1e-3. "discrete" differentiates the steps of "RK45" or "RK23" themselves, with
        the step sizes held: it is exact for the numbers returned, keeps about ``sqrt(steps)``
        states and the graph of as many steps (SciPy lists the state of each step while it solves),
        and `fun` may read tensors that are not in `args`.
    **options
        SciPy's ``rtol``, ``atol``, ``max_step``, ``first_step`` and others.

    Returns
    -------
    OdeResult
        SciPy's, in which ``t`` is an array and ``y`` the ``(n, len(t))`` tensor of states.

    Raises
    ------
    RuntimeError
        Where the solver stops early; where `fun` reads a tensor that has a derivative and is not
        in `args`, with the continuous adjoint.
    TypeError
        For events, ``dense_output``, and complex states.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.scipy import integrate
    >>> rate = lucid_gpu.tensor(0.5, dtype=lucid_gpu.float64, requires_grad=True)
    >>> y0 = lucid_gpu.tensor([2.0], dtype=lucid_gpu.float64)
    >>> fall = lambda t, y, r: -r * y
    >>> found = integrate.solve_ivp(
    ...     fall, (0, 2), y0, t_eval=[2.0], args=(rate,), rtol=1e-9, atol=1e-9
    ... )
    >>> found.y.sum().backward()
    >>> round(found.y.item(), 6), round(rate.grad.item(), 6)  # 2 exp(-1) and -4 exp(-1)
    (0.735759, -1.471518)
    """
    name = "integrate.solve_ivp"
    adjoint = options.pop("adjoint", "continuous")
    if adjoint not in ("continuous", "discrete"):
        raise ValueError(f"adjoint must be 'continuous' or 'discrete', got {adjoint!r}")
    for refused in ("events", "dense_output"):
        if options.pop(refused, None):
            raise TypeError(
                f"scipy.{name}: {refused} has no derivative here; leave it out and give t_eval, or "
                "call it with arrays"
            )
    library = scipy.module("cpu", "integrate")
    g = given(name, (y0,), () if args is None else args)
    y0, *tensors = g.tensors
    span, kept = [float(t) for t in t_span], list[Any]()

    def run(slope: Any, start: Any, ends: Any, times: Any) -> Any:
        found = library.solve_ivp(slope, ends, start, method=method, t_eval=times, **options)
        if not found.success:
            raise RuntimeError(f"scipy.{name} stopped at t = {found.t[-1:]}: {found.message}")
        if not kept:
            kept.append(found)
        return found

    def solve(slope: Any, start: Any, times: Any, end: float) -> Any:
        return run(slope, start, (times[0], end), times).y.T

    slope = slope_of(name, fun, g.put)
    times: Any = None if t_eval is None else _times(name, t_eval)
    if times is None or adjoint == "discrete":
        arrays = [_one(name, v).array for v in (y0, *tensors)]
        drive = called_with_arrays(name, slope, g.device, arrays[1:], adjoint == "continuous")
        steps = run(drive, on_host(y0), span, None).t
        times = steps if times is None else times
    whole = times if times[:1] == span[:1] else np.concatenate([span[:1], times])
    flow = Flow(name, slope, solve, whole, span[1])
    if adjoint == "discrete":
        kind = getattr(library, method, None) if isinstance(method, str) else method
        if not hasattr(kind, "P") or not hasattr(kind, "A"):
            raise ValueError(
                f"scipy.{name}: adjoint='discrete' is for the methods 'RK45' and 'RK23', got "
                f"{method!r}; write adjoint='continuous'"
            )
        found = replayed(flow, kind, steps, y0, tensors)
    else:
        found = states(y0, flow, *tensors)
    kept[0].update(t=times, y=found[len(whole) - len(times) :].T.to(g.dtype))
    return kept[0]


def _times(name: str, t: Any) -> Any:
    if isinstance(t, Tensor) and t.requires_grad:
        raise TypeError(f"scipy.{name} has no derivative by times; give it t.detach()")
    return np.atleast_1d(np.asarray(on_host(t) if isinstance(t, Tensor) else t, np.float64))


def _one(name: str, value: Tensor) -> Tensor:
    if value._wrapper is not None and value._wrapper.level.batches:
        raise RuntimeError(
            f"scipy.{name} under vmap takes t_eval and adjoint='continuous': the steps of the "
            "solver differ from example to example"
        )
    return value


@composed("integrate", by="y0 args", refused=f"full_output, Dfun; complex states; {CLOSED}")
def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    args: Any = (),
    rtol: Any = None,
    atol: Any = None,
    mxstep: int = 0,
    tfirst: bool = False,
) -> Tensor:
    """Return the ``(len(t), n)`` states of ``dy/dt = func(y, t, *args)`` at the times `t`.

    Derivatives by `y0` and `args` go back by the continuous adjoint; see `solve_ivp`. LSODA
    integrates both ways.

    Parameters
    ----------
    func : callable
        Of the state, a 0-d tensor `t` and `args`; the time comes first where `tfirst`.
    y0 : ``(n,)`` Tensor, real
    t : array
        Times in order, of which the first is that of `y0`.
    args, rtol, atol, mxstep, tfirst
        As in SciPy.

    Raises
    ------
    RuntimeError
        Where the integration fails; where `func` reads a tensor that has a derivative and is not
        in `args`.
    """
    name = "integrate.odeint"
    library = scipy.module("cpu", "integrate")
    g = given(name, (y0,), args)

    def solve(slope: Any, start: Any, times: Any, end: float) -> Any:
        settings = {"rtol": rtol, "atol": atol, "mxstep": mxstep}
        found, told = library.odeint(slope, start, times, tfirst=True, full_output=True, **settings)
        if told["message"] != "Integration successful.":
            raise RuntimeError(f"scipy.{name}: {told['message']}")
        return found

    ordered = func if tfirst else lambda t, y, *rest: func(y, t, *rest)
    times = _times(name, t)
    flow = Flow(name, slope_of(name, ordered, g.put), solve, times, times[-1])
    return states(g.tensors[0], flow, *g.tensors[1:]).to(g.dtype)


__getattr__ = others("integrate", globals())
