"""Gradients against finite differences.

A function is checked as a map from real numbers to real numbers. A complex output stands for two
real ones, looked at in turn; a complex input has a gradient ``ds/dx + i ds/dy`` for its parts x and
y, as autograd gives it. Arithmetic is done on host arrays in double precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.autograd.backward import grad
from lucid_gpu.device import CPU
from lucid_gpu.devices import room
from lucid_gpu.tape.node import Node
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

xp = room(CPU).xp  # all arithmetic here is on the host
_SEED = 20  # of the random directions and cotangents: a check gives the same answer every time


class GradcheckError(RuntimeError):
    """A gradient is not what finite differences say, or breaks another rule of gradients."""


class _Rules(NamedTuple):
    """What `gradcheck` was asked to hold a function to."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_grad_dtypes: bool = False
    check_undefined_grad: bool = True
    check_batched_grad: bool = False
    fast_mode: bool = False


class _Direction(NamedTuple):
    """What of an output is looked at: its real numbers, or one part of its complex ones."""

    cotangent: complex
    words: str

    def part(self, array: Any) -> Any:
        return array.imag if self.cotangent == 1j else array.real


_REAL = (_Direction(1, ""),)
_COMPLEX = (
    _Direction(1, "While considering the real part of complex outputs only, "),
    _Direction(1j, "While considering the imaginary part of complex outputs only, "),
)


# --- calling the function -------------------------------------------------------------------------


def _sequence(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _sequence(outputs) if isinstance(o, Tensor) and o.requires_grad]


def _host(t: Tensor) -> Any:
    """A double precision copy on the host."""
    kind = xp.complex128 if t.dtype.is_complex else xp.float64
    return t.detach().cpu().array.astype(kind)


def _like(array: Any, t: Tensor) -> Tensor:
    """A host array as a tensor of another's type and device."""
    made = from_array(array.astype(t.dtype.numpy), t.dtype, CPU)
    return made.to(t.device)


class _Case:
    """A function, its inputs, and which of its results take part."""

    def __init__(self, func: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.func = func
        self.inputs = tuple(inputs)
        self.places = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
        self.outputs = _sequence(func(*inputs))
        self.results = [
            i for i, o in enumerate(self.outputs) if isinstance(o, Tensor) and o.requires_grad
        ]

    def targets(self) -> list[Tensor]:
        return [self.inputs[i] for i in self.places]

    def fresh_outputs(self) -> list[Tensor]:
        """The differentiable outputs of another call, with a graph of their own."""
        outputs = _sequence(self.func(*self.inputs))
        return [outputs[i] for i in self.results]

    def values_at(self, place: int, array: Any) -> list[Any]:
        """The outputs on the host with other numbers for one input, wherever it was passed."""
        moved = self.inputs[place]
        other = _like(array, moved).requires_grad_()
        inputs = [other if t is moved else t for t in self.inputs]
        outputs = _sequence(self.func(*inputs))
        return [_host(o) for o in outputs if isinstance(o, Tensor) and o.dtype.category >= 2]

    def result_numbers(self) -> list[int]:
        """Where the differentiable outputs stand among the floating point ones."""
        floats = [
            i for i, o in enumerate(self.outputs) if isinstance(o, Tensor) and o.dtype.category >= 2
        ]
        return [floats.index(i) for i in self.results]


# --- finite differences ---------------------------------------------------------------------------


def _moves(dtype: dt.dtype) -> tuple[complex, ...]:
    return (1.0, 1j) if dtype.is_complex else (1.0,)


def _slopes(case: _Case, place: int, toward: Any, eps: float) -> list[Any]:
    """How fast each output changes when one input moves in a direction: central differences."""
    base = _host(case.inputs[place])
    above = case.values_at(place, base + eps * toward)
    below = case.values_at(place, base - eps * toward)
    return [(a - b) / (2 * eps) for a, b in zip(above, below, strict=True)]


def _numerical(case: _Case, place: int, eps: float, count: int) -> list[list[Any]]:
    """Per output: slopes for a move of each element, real (and imaginary) in turn."""
    target = case.inputs[place]
    columns: list[list[Any]] = [[] for _ in range(count)]
    for element in range(target.numel()):
        for move in _moves(target.dtype):
            toward = xp.zeros(tuple(target.shape), xp.complex128 if move == 1j else xp.float64)
            toward.reshape(-1)[element] = move
            for column, slope in zip(columns, _slopes(case, place, toward, eps), strict=True):
                column.append(slope.reshape(-1))
    return columns


def _numerical_jacobian(
    columns: list[Any], direction: _Direction, target: Tensor, size: int
) -> Any:
    """Rows for the input's elements, columns for the output's."""
    parts = [direction.part(c) for c in columns]
    table = xp.array(parts, xp.float64).reshape(len(parts), size)
    return table[0::2] + 1j * table[1::2] if target.dtype.is_complex else table


# --- autograd's answer ----------------------------------------------------------------------------


def _cotangent(output: Tensor, array: Any, direction: _Direction) -> Tensor:
    if direction.cotangent == 1j:
        array = array * 1j
    return _like(array, output)


def _pull(output: Tensor, targets: Sequence[Tensor], cotangent: Tensor) -> tuple[Any, ...]:
    return grad(output, targets, cotangent, retain_graph=True, allow_unused=True)


def _analytical(output: Tensor, targets: Sequence[Tensor], direction: _Direction) -> list[Any]:
    """Jacobians of one output by one pass for each of its elements."""
    count = output.numel()
    found = [
        xp.zeros((t.numel(), count), xp.complex128 if t.dtype.is_complex else xp.float64)
        for t in targets
    ]
    for element in range(count):
        one = xp.zeros(tuple(output.shape))
        one.reshape(-1)[element] = 1
        gradients = _pull(output, targets, _cotangent(output, one, direction))
        for jacobian, gradient in zip(found, gradients, strict=True):
            if gradient is not None:
                jacobian[:, element] = _host(gradient).reshape(-1)
    return found


# --- the checks -----------------------------------------------------------------------------------


def _check_inputs(inputs: Sequence[Any]) -> None:
    marked = [(i, t) for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not marked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    for i, t in marked:
        if t.dtype not in (dt.float64, dt.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. ",
                stacklevel=4,
            )
        strides = t.detach().array.strides
        if any(s == 0 and n > 1 for s, n in zip(strides, t.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients correctly. "
                "You should call .contiguous on the input before passing it to gradcheck."
            )


def _close(a: Any, b: Any, rules: _Rules) -> bool:
    return bool(xp.allclose(a, b, rules.rtol, rules.atol, equal_nan=True))


def _mismatch(direction: _Direction, i: int, o: int, numerical: Any, analytical: Any) -> str:
    return (
        f"{direction.words}Jacobian mismatch for output {o} with respect to input {i},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n"
    )


def _check_constant(case: _Case, rules: _Rules) -> None:
    """A function whose outputs require no gradient must not change with its inputs."""
    count = sum(isinstance(o, Tensor) and o.dtype.category >= 2 for o in case.outputs)
    for place in case.places:
        for columns in _numerical(case, place, rules.eps, count):
            if any(bool(abs(c).max(initial=0) > rules.atol) for c in columns):
                raise GradcheckError(
                    "Numerical gradient for function expected to be zero: no output requires grad, "
                    f"but they change with input {place}"
                )


def _check_slowly(case: _Case, rules: _Rules) -> None:
    outputs = case.fresh_outputs()
    targets = case.targets()
    count = sum(isinstance(o, Tensor) and o.dtype.category >= 2 for o in case.outputs)
    slopes = [_numerical(case, place, rules.eps, count) for place in case.places]
    for o, (number, output) in enumerate(zip(case.result_numbers(), outputs, strict=True)):
        for direction in _COMPLEX if output.dtype.is_complex else _REAL:
            first = _analytical(output, targets, direction)
            again = _analytical(output, targets, direction)
            for k, place in enumerate(case.places):
                numerical = _numerical_jacobian(
                    slopes[k][number], direction, targets[k], output.numel()
                )
                if not _close(first[k], numerical, rules):
                    raise GradcheckError(_mismatch(direction, place, o, numerical, first[k]))
                _check_repeats(first[k], again[k], rules)


def _check_repeats(first: Any, again: Any, rules: _Rules) -> None:
    if first.size and not abs(first - again).max() <= rules.nondet_tol:
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches numerical "
            f"gradient. The tolerance for nondeterminism was {rules.nondet_tol}."
        )


def _check_fast(case: _Case, rules: _Rules) -> None:
    """One random direction through inputs and outputs instead of whole Jacobians."""
    outputs = case.fresh_outputs()
    targets = case.targets()
    random = xp.random.default_rng(_SEED)
    weights = [_unit(random, o) for o in outputs]
    for k, place in enumerate(case.places):
        toward = _unit(random, targets[k])
        slopes = [_slopes(case, place, toward * m, rules.eps) for m in _moves(targets[k].dtype)]
        for o, (number, output) in enumerate(zip(case.result_numbers(), outputs, strict=True)):
            for direction in _COMPLEX if output.dtype.is_complex else _REAL:
                numerical = sum(
                    move * (direction.part(s[number]) * weights[o]).sum()
                    for s, move in zip(slopes, _moves(targets[k].dtype), strict=True)
                )
                sent = _cotangent(output, weights[o], direction)
                answers = []
                for _ in range(2):
                    (gradient,) = _pull(output, [targets[k]], sent)
                    answers.append(0.0 if gradient is None else (_host(gradient) * toward).sum())
                if not _close(answers[0], numerical, rules):
                    words = _mismatch(direction, place, o, numerical, answers[0])
                    raise GradcheckError(
                        words + "\nThe above quantities relating the numerical and analytical "
                        "jacobians are computed in fast mode; run with fast_mode=False to see the "
                        "jacobians.\n"
                    )
                _check_repeats(xp.array(answers[0]), xp.array(answers[1]), rules)


def _unit(random: Any, t: Tensor) -> Any:
    direction = random.uniform(0.1, 1.0, tuple(t.shape))
    return direction / max(float((direction * direction).sum()) ** 0.5, 1e-30)


def _check_gradient_form(case: _Case, rules: _Rules) -> None:
    """Gradients have their inputs' shape and device, and vanish with the outputs' gradients."""
    outputs = case.fresh_outputs()
    zeros = [_like(xp.zeros(tuple(o.shape)), o) for o in outputs]
    targets = case.targets()
    for t, g in zip(targets, grad(outputs, targets, zeros, allow_unused=True), strict=True):
        if g is None:
            continue
        if g.shape != t.shape:
            raise GradcheckError(
                f"grad is incorrect size: expected {list(t.shape)}, got {list(g.shape)}"
            )
        if g.device != t.device:
            raise GradcheckError(f"grad is on incorrect device: {g.device} instead of {t.device}")
        if rules.check_grad_dtypes and g.dtype is not t.dtype:
            raise GradcheckError(f"grad is incorrect type: expected {t.dtype}, got {g.dtype}")
        if not (_host(g) == 0).all():
            raise GradcheckError(
                "backward not multiplied by grad_output: it gives a gradient that is not zero for "
                "output gradients of zero"
            )


class _Undefined(Node):
    """Passes no gradient on."""

    __slots__ = ()

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        return (None,)


def _behind_undefined(output: Tensor) -> Tensor:
    hidden = output.alias().detach()
    hidden._storage = None
    hidden._attach(_Undefined((output._edge(),)))
    return hidden


def _check_undefined(case: _Case) -> None:
    """Outputs whose gradients are undefined: all of them, then each in turn."""
    count = len(case.results)
    for missing in [set(range(count)), *({i} for i in range(count if count > 1 else 0))]:
        outputs = case.fresh_outputs()
        roots = [_behind_undefined(o) if i in missing else o for i, o in enumerate(outputs)]
        cotangents = [
            _like(xp.zeros(tuple(o.shape)) if i in missing else xp.ones(tuple(o.shape)), o)
            for i, o in enumerate(outputs)
        ]
        targets = case.targets()
        try:
            gradients = grad(roots, targets, cotangents, allow_unused=True)
        except Exception as error:
            raise GradcheckError(
                "Expected backward function to handle undefined output grads (None, with "
                f"set_materialize_grads(False)): {error}"
            ) from error
        if len(missing) == count and any(
            g is not None and not (_host(g) == 0).all() for g in gradients
        ):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero."
            )


def _check_batched(case: _Case, rules: _Rules) -> None:
    """``is_grads_batched`` gives what one pass a row gives."""
    outputs = case.fresh_outputs()
    targets = case.targets()
    random = xp.random.default_rng(_SEED)
    for o, output in enumerate(outputs):
        rows = _like(random.standard_normal((2, *output.shape)), output)
        together = grad(output, targets, rows, True, allow_unused=True, is_grads_batched=True)
        single = [_pull(output, targets, rows[i]) for i in range(2)]
        for place, batch, *each in zip(case.places, together, *single, strict=True):
            expected = [0.0 if g is None else _host(g) for g in each]
            got = 0.0 if batch is None else _host(batch)
            if not _close(got, xp.array(expected), rules):
                raise GradcheckError(
                    f"For output {o} and input {place}: gradients computed in a batch differ from "
                    "those of single passes"
                )


# --- public ---------------------------------------------------------------------------------------


def _run(func: Callable[..., Any], inputs: tuple[Any, ...], rules: _Rules) -> None:
    case = _Case(func, inputs)
    if not case.results:
        _check_constant(case, rules)
        return
    check = _check_fast if rules.fast_mode else _check_slowly
    check(case, rules)
    if rules.check_batched_grad:
        _check_batched(case, rules)
    _check_gradient_form(case, rules)
    if rules.check_undefined_grad:
        _check_undefined(case)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check gradients against finite differences of the function.

    Parameters
    ----------
    func : callable
        From tensors to a tensor or a tuple of them.
    inputs : Tensor or tuple
        Those that require grad are checked; they should be float64 or complex128.
    eps : float
        Step of the differences.
    atol, rtol : float
        The gradients may differ by ``atol + rtol * |numerical|``.
    raise_exception : bool
        False: return False instead of raising `GradcheckError`.
    nondet_tol : float
        How far two backward passes may differ.
    check_undefined_grad : bool
        Also that undefined output gradients are accepted.
    check_grad_dtypes, check_batched_grad : bool
        Also that gradients have their input's type; that batched passes agree with single ones.
    fast_mode : bool
        Compare one random direction instead of all elements.

    Returns
    -------
    bool

    Raises
    ------
    GradcheckError
        Where a check fails; ValueError where no input requires grad.
    """
    if check_forward_ad:
        raise NotImplementedError("gradcheck(check_forward_ad=True): there is no forward mode yet")
    if not check_backward_ad:
        raise ValueError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    given = _sequence(inputs)
    rules = _Rules(eps, atol, rtol, nondet_tol)._replace(
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
    )
    return _guarded(func, given, rules, raise_exception)


def _guarded(
    func: Callable[..., Any], inputs: tuple[Any, ...], rules: _Rules, raise_exception: bool
) -> bool:
    _check_inputs(inputs)
    try:
        _run(func, inputs, rules)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _random_cotangents(outputs: Sequence[Tensor], strided: bool) -> Iterator[Tensor]:
    random = xp.random.default_rng(_SEED)
    for output in outputs:
        shape = (*output.shape, 2) if strided else tuple(output.shape)
        array = random.standard_normal(shape)
        if output.dtype.is_complex:
            array = array + 1j * random.standard_normal(shape)
        made = _like(array, output)
        yield (made[..., 0] if strided else made).requires_grad_()


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives: `gradcheck` of the gradient, by inputs and output gradients.

    Parameters
    ----------
    grad_outputs : Tensor or tuple, optional
        Gradients of the outputs; random if left out.
    gen_non_contig_grad_outputs : bool
        Make the random ones strided.
    **others
        As for `gradcheck`.
    """
    if check_fwd_over_rev:
        raise NotImplementedError(
            "gradgradcheck(check_fwd_over_rev=True): there is no forward mode yet"
        )
    given = _sequence(inputs)
    outputs = _differentiable(func(*given))
    if grad_outputs is None:
        sent = tuple(_random_cotangents(outputs, gen_non_contig_grad_outputs))
    else:
        sent = _sequence(grad_outputs)
    count = len(sent)

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        values, cotangents = args[: len(args) - count], args[len(args) - count :]
        results = _differentiable(func(*values))
        targets = [t for t in values if isinstance(t, Tensor) and t.requires_grad]
        found = grad(results, targets, cotangents, create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    rules = _Rules(eps, atol, rtol, nondet_tol)._replace(
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
    )
    return _guarded(gradient, (*given, *sent), rules, raise_exception)
