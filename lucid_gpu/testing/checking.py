"""`check_function`: everything a custom function must keep to, in one call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.autograd.function import Function
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.gradcheck import _check_undefined, gradcheck, gradgradcheck
from lucid_gpu.autograd.jacobians import Case, host, like, xp
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.tensor import Tensor
from lucid_gpu.testing.comparison import array_difference, tolerances
from lucid_gpu.testing.holders import holder_of
from lucid_gpu.testing.report import FAILED, NOT_APPLICABLE, PASSED, CheckFunctionError, Report, Row
from lucid_gpu.testing.subject import NotApplicable, Subject, with_gaps


def leaked(subject: Subject, backward: bool) -> str | None:
    """Call the function, forget everything, and say what lives on; None if nothing does."""
    watched = _call(subject, backward)
    gc.collect()
    alive = [(name, value) for name, r in watched if (value := r()) is not None]
    if not alive:
        return None
    names = ", ".join(name for name, _ in alive)
    holder = holder_of(subject.function, [value for _, value in alive])
    where = f"; {holder} holds it" if holder else ""
    return f"{names} alive after {'backward' if backward else 'forward'} and a collection{where}"


def _call(subject: Subject, backward: bool) -> list[tuple[str, Any]]:
    args = subject.fresh()
    outputs = subject.outputs(args)
    watched = [(f"input {i}", weakref.ref(args[i])) for i in subject.positions]
    for i, o in enumerate(outputs):
        watched.append((f"output {i}", weakref.ref(o)))
        if o.grad_fn is not None:
            watched.append((o.grad_fn.name(), weakref.ref(o.grad_fn)))
    if backward and outputs:
        targets = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        grad(outputs, targets, subject.cotangents(outputs), allow_unused=True)
    return watched


Tolerance = tuple[float, float]  # relative, absolute
Run = tuple[list[Any], list[Any]]  # outputs and gradients on the host

_EXACT = (1e-7, 1e-9)
_ONCE = "trying to differentiate twice a function that was marked with @once_differentiable"


def check_function(
    function: Any,
    *inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    dtype: dt.dtype | None = dt.float64,
    skip: Sequence[str] = (),
) -> Report:
    """Check a custom function: gradients, layouts, devices, memory.

    One row each: forward and backward run; the gradient and the second gradient agree with finite
    differences; undefined output gradients are accepted; each input's gradient is the same when
    it is the only one wanted; strided inputs and cotangents give what contiguous ones give; two
    passes give the same; nothing is written that is not the function's own; the inputs' own types
    give what float64 gives; nothing outlives the call; CPU and GPU agree; jvp is right.

    Parameters
    ----------
    function : Function class or callable
        Of a class its ``apply`` is called.
    *inputs
        What to call it with. Tensors that require grad are differentiated by; all floating point
        ones if none does. They are copied and stay as they are.
    eps, atol, rtol : float
        See `gradcheck`.
    dtype : dtype or None
        The type to check in; None keeps the inputs' own, for kernels that take one type only (give
        a larger ``eps`` and tolerances with it).
    skip : sequence of str
        Rows to leave out.

    Returns
    -------
    Report
        Prints as a table.

    Raises
    ------
    CheckFunctionError
        If a check failed, with that table.
    ValueError
        For a check in ``skip`` that there is not.

    Examples
    --------
    >>> import lucid_gpu
    >>> class Cube(lucid_gpu.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x ** 2
    >>> lucid_gpu.testing.check_function(Cube, lucid_gpu.tensor([1.0, 2.0])).passed
    True
    """
    subject = Subject(function, inputs, dtype)
    rules = {"eps": eps, "atol": atol, "rtol": rtol}
    checks: dict[str, Callable[[], str]] = {
        "gradient": partial(_gradient, subject, rules),
        "second gradient": partial(_second_gradient, subject, rules),
        "undefined gradients": partial(_undefined, subject),
        "inputs one by one": partial(_one_by_one, subject),
        "strided": partial(_strided, subject),
        "two passes": partial(_two_passes, subject),
        "in-place writes": partial(_writes, subject),
        "own types": partial(_own_types, subject),
        "memory": partial(_memory, subject),
        "CPU and GPU": partial(_devices, subject),
        "jvp": partial(_jvp, subject, rules),
    }
    unknown = set(skip) - set(checks)
    if unknown:
        raise ValueError(f"check_function: skip names {sorted(unknown)}; there are {[*checks]}")
    rows = [_row("forward and backward", partial(_runs, subject))]
    for name, check in checks.items():
        if name in skip:
            rows.append(Row(name, NOT_APPLICABLE, "left out by the caller"))
        elif rows[0].result == FAILED:
            rows.append(Row(name, NOT_APPLICABLE, "backward does not run"))
        else:
            rows.append(_row(name, check))
    report = Report(subject.name, rows)
    if not report.passed:
        raise CheckFunctionError(report)
    return report


def _row(name: str, check: Callable[[], str]) -> Row:
    try:
        return Row(name, PASSED, check())
    except NotApplicable as reason:
        return Row(name, NOT_APPLICABLE, str(reason))
    except AssertionError as difference:
        return Row(name, FAILED, str(difference))
    except Exception as error:  # whatever the user's code raises is what the row reports
        return Row(name, FAILED, f"{type(error).__name__}: {error}")


# --- the checks: each returns what a person may want to know of one that passed -------------------


def _runs(s: Subject) -> str:
    outputs, gradients = s.run(s.fresh(), s.cotangents)
    reached = [i for i, g in zip(s.positions, gradients, strict=True) if g is not None]
    return f"{len(outputs)} output(s) with a gradient; inputs with one: {reached or 'none'}"


def _gradient(s: Subject, rules: dict[str, Any]) -> str:
    gradcheck(s.call, tuple(s.fresh()), **rules, check_undefined_grad=False)
    return f"finite differences by {_inputs(s)}, step {rules['eps']:g}"


def _inputs(s: Subject) -> str:
    return f"input {s.positions[0]}" if len(s.positions) == 1 else f"inputs {s.positions}"


def _second_gradient(s: Subject, rules: dict[str, Any]) -> str:
    try:
        gradgradcheck(s.call, tuple(s.fresh()), **rules, check_undefined_grad=False)
    except RuntimeError as error:
        if _ONCE in str(error):
            raise NotApplicable("backward is marked @once_differentiable") from None
        raise
    return "finite differences of the gradient"


def _undefined(s: Subject) -> str:
    _check_undefined(Case(s.call, s.fresh()))
    return "output gradients that are undefined are accepted"


def _one_by_one(s: Subject) -> str:
    if len(s.positions) == 1:
        raise NotApplicable("one input only")
    _, together = s.run(s.fresh(), s.cotangents)
    for i, position in enumerate(s.positions):
        _, (alone,) = s.run(s.fresh(positions=[position]), s.cotangents)
        what = f"the gradient of input {position} when no other is wanted"
        _same(alone, together[i], what, _EXACT)
    return "needs_input_grad changes no gradient"


def _same(got: Any, expected: Any, what: str, tolerance: Tolerance) -> None:
    if got is None or expected is None:
        other = next((x for x in (got, expected) if x is not None), None)
        if other is not None and other.any():
            raise AssertionError(
                f"{what} is {'' if got is None else 'not '}None, expected otherwise"
            )
        return
    if got.shape != expected.shape:
        raise AssertionError(f"{what} has shape {got.shape}, expected {expected.shape}")
    words = array_difference(got, expected, *tolerance, True)
    if words is not None:
        raise AssertionError(f"{what} differs. {words}")


def _compare(got: Run, expected: Run, how: str, tolerance: Tolerance) -> None:
    for kind, mine, theirs in zip(("output", "gradient"), got, expected, strict=True):
        if len(mine) != len(theirs):
            raise AssertionError(f"{how}: {len(mine)} {kind}s instead of {len(theirs)}")
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            _same(a, b, f"{how}: {kind} {i}", tolerance)


def _strided(s: Subject) -> str:
    expected = s.run(s.fresh(), s.cotangents)
    gaps = lambda outputs: [with_gaps(c) for c in s.cotangents(outputs)]  # noqa: E731
    _try(s, expected, "strided inputs", s.fresh(with_gaps), s.cotangents)
    _try(s, expected, "strided cotangents", s.fresh(), gaps)
    ones = s.run(s.fresh(), partial(_ones, expanded=False))
    _try(s, ones, "cotangents of stride 0", s.fresh(), partial(_ones, expanded=True))
    return "strided inputs, strided and expanded cotangents"


def _try(s: Subject, expected: Any, how: str, args: list[Any], cotangents: Any) -> None:
    try:
        got = s.run(args, cotangents)
    except Exception as error:  # the user's code; the row says under which condition
        raise AssertionError(f"with {how}: {type(error).__name__}: {error}") from error
    _compare(got, expected, f"with {how}", _EXACT)


def _ones(outputs: Sequence[Tensor], expanded: bool) -> list[Tensor]:
    if expanded:
        return [like(xp.ones(()), o).expand(tuple(o.shape)) for o in outputs]
    return [like(xp.ones(tuple(o.shape)), o) for o in outputs]


def _two_passes(s: Subject) -> str:
    args = s.fresh()
    targets = [args[i] for i in s.positions]
    outputs = s.outputs(args)
    if not outputs:
        raise NotApplicable("no output has a gradient")
    values, sent = [host(o) for o in outputs], s.cotangents(outputs)
    passes = [grad(outputs, targets, sent, True, allow_unused=True) for _ in range(2)]
    first, second = ([None if g is None else host(g) for g in grads] for grads in passes)
    _compare((values, second), (values, first), "a second pass through the graph", _EXACT)
    _compare(s.run(s.fresh(), s.cotangents), (values, first), "a second call", _EXACT)
    return "the same gradients through one graph twice, and from a second call"


def _writes(s: Subject) -> str:
    s.written.clear()
    args = s.fresh()
    tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, Tensor) and not a._is_sparse]
    before = [host(a) for _, a in tensors]
    s.run(args, s.cotangents)
    if s.written:
        raise AssertionError(
            f"backward changes the gradient of output {s.written[0]} in place; it belongs to "
            "others: write grad = grad * x instead of grad.mul_(x), or change grad.clone()"
        )
    for (i, a), kept in zip(tensors, before, strict=True):
        if not xp.array_equal(host(a), kept, equal_nan=True):
            raise AssertionError(
                f"input {i} is changed in place; say ctx.mark_dirty(input) and return it, or "
                "change a clone"
            )
    return "neither inputs nor output gradients are changed"


def _own_types(s: Subject) -> str:
    own = [s.inputs[i].dtype for i in s.positions]
    if s.dtype is None or all(d in (dt.float64, dt.complex128) for d in own):
        raise NotApplicable("the inputs are checked in their own types")
    rough = Subject(s.function, s.inputs, None)
    expected = s.run(s.fresh(), s.cotangents)
    relative, absolute = tolerances(*own)
    _compare(
        rough.run(rough.fresh(), rough.cotangents),
        expected,
        f"in {' and '.join(dict.fromkeys(d.name for d in own))}",
        (20 * relative, 20 * absolute),
    )
    return f"{', '.join(dict.fromkeys(d.name for d in own))} give what {s.dtype.name} gives"


def _memory(s: Subject) -> str:
    for backward in (False, True):
        alive = leaked(s, backward)
        if alive is not None:
            raise AssertionError(alive)
    return "nothing outlives the call, with and without backward"


def _devices(s: Subject) -> str:
    missing = problem()
    if missing is not None:
        raise NotApplicable(missing)
    results = [s.run(s.fresh(device=where), s.cotangents) for where in ("cpu", "cuda")]
    relative, absolute = tolerances(s.dtype or s.inputs[s.positions[0]].dtype)
    _compare(results[1], results[0], "on cuda", (10 * relative, 10 * absolute))
    return "outputs and gradients on cuda are those of the CPU"


def _jvp(s: Subject, rules: dict[str, Any]) -> str:
    if s.custom is None or s.custom.jvp is Function.jvp:
        raise NotApplicable(f"{s.name} defines no jvp")
    gradcheck(
        s.call,
        tuple(s.fresh()),
        **rules,
        check_forward_ad=True,
        check_backward_ad=False,
        check_undefined_grad=False,
    )
    return "forward mode agrees with finite differences"
