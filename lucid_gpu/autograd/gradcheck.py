"""Gradients against finite differences, and the other rules that gradients keep."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.jacobians import (
    REAL,
    Case,
    Part,
    backward_form,
    backward_jacobians,
    cotangent,
    forward_rows,
    host,
    like,
    numerical,
    parts_of,
    pull,
    sequence,
    slopes,
    tangents,
    xp,
)
from lucid_gpu.core.node import Node
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tensor import Tensor, from_array

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "gradcheck",
    "gradgradcheck",
]

_SEED = 20  # of the random directions and cotangents: a check gives the same answer every time


class GradcheckError(RuntimeError):
    """A gradient is not what finite differences say, or breaks another rule of gradients."""


class _Rules(NamedTuple):
    """What `gradcheck` was asked to hold a function to."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool
    masked: bool | None


# --- comparing ------------------------------------------------------------------------------------


def _close(a: Any, b: Any, rules: _Rules) -> bool:
    return bool(xp.allclose(a, b, rules.rtol, rules.atol, equal_nan=True))


def _mismatch(looked_at: str, mode: str, i: int, o: int, expected: Any, got: Any) -> str:
    only = f"While considering the {looked_at} only, " if looked_at else ""
    return (
        f"{only}Jacobian {mode}mismatch for output {o} with respect to input {i},\n"
        f"numerical:{expected}\nanalytical:{got}\n"
    )


def _outputs(part: Part) -> str:
    return f"{part.name} part of complex outputs" if part.name else ""


def _inputs(part: Part) -> str:
    return f"{part.name} part of complex inputs" if part.name else ""


_FORWARD = "computed with forward mode "


def _check_repeats(first: Any, again: Any, rules: _Rules) -> None:
    if first.size and not abs(first - again).max() <= rules.nondet_tol:
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches numerical "
            f"gradient. The tolerance for nondeterminism was {rules.nondet_tol}; give nondet_tol= "
            "if the function sums in no fixed order."
        )


# --- whole Jacobians ------------------------------------------------------------------------------


def _check_constant(case: Case, rules: _Rules) -> None:
    """A function whose outputs require no gradient must not change with its inputs."""
    for position in case.positions:
        for lists in numerical(case, position, rules.eps):
            if any(xp.any(slope != 0) for rows in lists for slope in rows):
                raise GradcheckError(
                    "Numerical gradient for function expected to be zero: no output requires grad, "
                    f"but they change with input {position}. Was the graph cut, by detach() or "
                    "no_grad()?"
                )


def _check_backward(case: Case, rules: _Rules, differences: list[Any]) -> None:
    outputs, targets = case.fresh_outputs(), case.targets()
    for o, (number, output) in enumerate(zip(case.results, outputs, strict=True)):
        for part in reversed(parts_of(output)):
            first = backward_jacobians(output, targets, part)
            for a, b in zip(first, backward_jacobians(output, targets, part), strict=True):
                _check_repeats(a, b, rules)
            for k, position in enumerate(case.positions):
                expected = backward_form(differences[k][number], part, output.numel())
                if not _close(first[k], expected, rules):
                    raise GradcheckError(
                        _mismatch(_outputs(part), "", position, o, expected, first[k])
                    )


def _check_forward(case: Case, rules: _Rules, differences: list[Any]) -> None:
    for k, position in enumerate(case.positions):
        for m, part in enumerate(parts_of(case.inputs[position])):
            rows = forward_rows(case, position, part)
            for o, number in enumerate(case.results):  # of the others PyTorch asks nothing
                expected, got = xp.array(differences[k][number][m]), xp.array(rows[number])
                if not _close(got, expected, rules):
                    raise GradcheckError(
                        _mismatch(_inputs(part), _FORWARD, position, o, expected, got)
                    )


def _check_slowly(case: Case, rules: _Rules) -> None:
    differences = [numerical(case, position, rules.eps) for position in case.positions]
    if rules.check_backward_ad:
        _check_backward(case, rules, differences)
    if rules.check_forward_ad:
        _check_forward(case, rules, differences)


# --- one direction --------------------------------------------------------------------------------


def _unit(random: Any, shape: Sequence[int]) -> Any:
    direction = random.uniform(0.1, 1.0, tuple(shape))
    return direction / max(float((direction * direction).sum()) ** 0.5, 1e-30)


def _check_fast(case: Case, rules: _Rules) -> None:
    """One random direction through inputs and outputs instead of whole Jacobians."""
    random = xp.random.default_rng(_SEED)
    for position in case.positions:
        toward = _unit(random, case.inputs[position].shape)
        differences = [
            slopes(case, position, toward * part.unit, rules.eps)
            for part in parts_of(case.inputs[position])
        ]
        if rules.check_backward_ad:
            _check_backward_fast(case, rules, position, toward, differences)
        if rules.check_forward_ad:
            _check_forward_fast(case, rules, position, toward, differences)


def _check_backward_fast(
    case: Case, rules: _Rules, position: int, toward: Any, differences: list[Any]
) -> None:
    random = xp.random.default_rng(_SEED + 1)
    target = case.inputs[position]
    units = [part.unit for part in parts_of(target)]
    for o, (number, output) in enumerate(zip(case.results, case.fresh_outputs(), strict=True)):
        weights = _unit(random, output.shape)
        for part in reversed(parts_of(output)):
            moves = [(part.of(s[number]) * weights).sum() for s in differences]
            expected = sum(u * m for u, m in zip(units, moves, strict=True))
            answers = []
            for _ in range(2):
                (gradient,) = pull(output, [target], cotangent(output, weights, part))
                total = 0.0 if gradient is None else (host(gradient) * toward).sum()
                answers.append(xp.array(total))
            _check_repeats(answers[0], answers[1], rules)
            if not _close(answers[0], expected, rules):
                words = _mismatch(_outputs(part), "", position, o, expected, answers[0])
                raise GradcheckError(words + _in_full(case, rules, position, o, part))


def _check_forward_fast(
    case: Case, rules: _Rules, position: int, toward: Any, differences: list[Any]
) -> None:
    for m, part in enumerate(parts_of(case.inputs[position])):
        moved = tangents(case, {**case.still, position: toward * part.unit})
        for o, number in enumerate(case.results):
            tangent, expected = moved[number][1], differences[m][number]
            got = xp.zeros_like(expected) if tangent is None else tangent
            if not _close(got, expected, rules):
                words = _mismatch(_inputs(part), _FORWARD, position, o, expected, got)
                raise GradcheckError(words)


def _in_full(case: Case, rules: _Rules, position: int, o: int, part: Part) -> str:
    """The whole Jacobians, for the message of a fast check that failed."""
    output = case.fresh_outputs()[o]
    differences = numerical(case, position, rules.eps)[case.results[o]]
    expected = backward_form(differences, part, output.numel())
    (got,) = backward_jacobians(output, [case.inputs[position]], part)
    words = (
        "\nThe above quantities relating the numerical and analytical jacobians are computed in "
        "fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
        f"Numerical:\n{expected}\nAnalytical:\n{got}\n\n"
        f"The max per-element difference (slow mode) is: {abs(expected - got).max(initial=0)}.\n"
    )
    if _close(got, expected, rules):
        words += "Fast gradcheck failed but element-wise differences are small: fast_mode=False.\n"
    return words


# --- the form of gradients ------------------------------------------------------------------------


def _check_gradient_form(case: Case, rules: _Rules) -> None:
    """Gradients have their inputs' type, shape and device, and vanish with those of the outputs."""
    outputs = case.fresh_outputs()
    zeros = [like(xp.zeros(tuple(o.shape)), o) for o in outputs]
    targets = case.targets()
    for t, g in zip(targets, grad(outputs, targets, zeros, allow_unused=True), strict=True):
        if g is None:
            continue
        array = host(g)
        if not (xp.allclose(array, 0) if rules.masked else (array == 0).all()):
            raise GradcheckError(
                "backward not multiplied by grad_output: it gives a gradient that is not zero for "
                "output gradients of zero"
            )
        for what, expected, got in (
            ("layout", t.layout, g.layout),
            ("type", t.dtype, g.dtype),
            ("device", t.device, g.device),
            ("size", t.shape, g.shape),
        ):
            if expected != got:
                raise GradcheckError(f"grad is incorrect {what}: expected {expected}, got {got}")


class _Undefined(Node):
    """Passes no gradient on."""

    __slots__ = ()

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        return (None,)


def _behind_undefined(output: Tensor) -> Tensor:
    hidden = like(host(output), output)
    hidden._attach(_Undefined((output._edge(),)))
    return hidden


def _check_undefined(case: Case) -> None:
    """Outputs whose gradients are undefined: all of them, then each in turn."""
    count = len(case.results)
    for missing in [set(range(count)), *({i} for i in range(count if count > 1 else 0))]:
        outputs = case.fresh_outputs()
        roots = [_behind_undefined(o) if i in missing else o for i, o in enumerate(outputs)]
        zeros = [like(xp.zeros(tuple(o.shape)), o) for o in outputs]
        try:
            gradients = grad(roots, case.targets(), zeros, allow_unused=True)
        except Exception as error:
            _warn_of_undefined()
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. It was given None, "
                f"which set_materialize_grads(False) allows, and raised {type(error).__name__}: "
                f"{error}. Write `if grad is None: return None` first, or pass "
                "check_undefined_grad=False."
            ) from error
        if any(g is not None and not (host(g) == 0).all() for g in gradients):
            _warn_of_undefined()
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero."
            )


def _warn_of_undefined() -> None:
    warn_user(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by "
        "default, but it may break existing callers of this function. If this is true for you, you "
        'can call this function with "check_undefined_grad=False" to disable the feature'
    )


def _check_undefined_tangents(case: Case) -> None:
    """An input without a tangent counts as one whose tangent is zero."""
    random = xp.random.default_rng(_SEED)
    toward = {position: _unit(random, case.inputs[position].shape) for position in case.positions}
    for position in case.positions:
        others = {p: d for p, d in toward.items() if p != position}
        with_zeros = tangents(case, {**others, position: toward[position] * 0})
        without = tangents(case, others)
        for o, ((_, a), (_, b)) in enumerate(zip(with_zeros, without, strict=True)):
            if a is not None and b is not None and not xp.allclose(a, b):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {o} when input: {position} "
                    f"has an undefined tangent value. Got: {a} but expected: {b}"
                )


# --- batches --------------------------------------------------------------------------------------


_BATCHED = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation: one pass of a "
    "batch does not give what single passes give. Write ops that vmap has rules for, or pass "
    "check_batched_grad=False (check_batched_forward_grad=False)."
)


def _check_batched(case: Case, rules: _Rules) -> None:
    """``is_grads_batched`` gives what one pass a row gives."""
    targets = case.targets()
    random = xp.random.default_rng(_SEED)
    for o, output in enumerate(case.fresh_outputs()):
        rows = like(random.standard_normal((2, *output.shape)), output)
        single = [pull(output, targets, rows[i]) for i in range(2)]
        try:
            together = grad(output, targets, rows, True, allow_unused=True, is_grads_batched=True)
        except RuntimeError as error:
            words = f"While computing batched gradients, got: {error}\n\n{_BATCHED}"
            raise GradcheckError(words) from error
        for position, batch, *each in zip(case.positions, together, *single, strict=True):
            expected = xp.array([0.0 if g is None else host(g) for g in each])
            _compare_batch(0.0 if batch is None else host(batch), expected, o, position)


def _check_batched_tangents(case: Case) -> None:
    """`vmap` over tangents gives what one pass a tangent gives."""
    from lucid_gpu.autograd import forward_ad
    from lucid_gpu.func import vmap

    random = xp.random.default_rng(_SEED)
    for position in case.positions:
        target = case.inputs[position]
        rows = random.standard_normal((2, *target.shape))

        def jvp(tangent: Tensor, position: int = position, target: Tensor = target) -> Any:
            with forward_ad.dual_level():
                inputs = [i.detach() if isinstance(i, Tensor) else i for i in case.inputs]
                if tangent._wrapper is not None:
                    tangent._wrapper.level.alike = True
                inputs[position] = forward_ad.make_dual(target.detach(), tangent)
                duals = [forward_ad.unpack_dual(o) for o in sequence(case.func(*inputs))]
                zeros = [d.primal.detach() * 0 for d in duals]
                filled = [z if d.tangent is None else d.tangent for d, z in zip(duals, zeros)]
                return tuple(filled)

        single = [[host(t) for t in jvp(like(row, target))] for row in rows]
        try:
            together = vmap(jvp)(like(rows, target))
        except RuntimeError as error:
            words = f"While computing batched gradients, got: {error}\n\n{_BATCHED}"
            raise GradcheckError(words) from error
        for o, batch in enumerate(together):
            _compare_batch(host(batch), xp.array([row[o] for row in single]), o, position)


def _compare_batch(got: Any, expected: Any, o: int, position: int) -> None:
    if not xp.allclose(got, expected):
        raise GradcheckError(
            f"For output {o} and input {position}:\n\n{_BATCHED}\n\nGot:\n{got}\n\n"
            f"Expected:\n{expected}"
        )


# --- public ---------------------------------------------------------------------------------------


def _check_inputs(inputs: Sequence[Any]) -> None:
    marked = [(i, t) for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not marked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
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
        _check_layout(i, t)


def _check_layout(i: int, t: Tensor) -> None:
    if t._is_sparse:
        return
    strides = t.detach().array.strides
    if t.numel() and any(s == 0 and n > 1 for s, n in zip(strides, t.shape, strict=True)):
        raise RuntimeError(
            f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
            "that are non-overlapping to be able to compute the numerical gradients correctly. "
            "You should call .contiguous on the input before passing it to gradcheck."
        )


def _check_sparse_form(sparse_dim: int, dense_dim: int, g: Tensor | None) -> None:
    """The gradient of a sparse input is dense, or lists by as many dimensions."""
    if g is None or not g._is_sparse:
        return
    for what, expected, got in (
        ("sparse_dim", sparse_dim, g.sparse_dim()),
        ("dense_dim", dense_dim, g.dense_dim()),
    ):
        if expected != got:
            raise GradcheckError(
                f"grad is sparse tensor, but has incorrect {what} {got}, expected {expected}"
            )


def _of_values(
    func: Callable[..., Any], inputs: tuple[Any, ...], masked: bool | None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of the values of sparse inputs, and these: where nothing is listed, none moves."""
    from lucid_gpu.sparse import sparse_coo_tensor

    made: dict[int, Callable[[Tensor], Tensor]] = {}
    arguments = list(inputs)
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor) and t._is_sparse and t.requires_grad:
            if not masked and not (t.is_coalesced() and t._values().numel() == t.numel()):
                raise ValueError(
                    f"Input #{i} is sparse: gradcheck moves the elements that are listed, if "
                    "masked=True says that the others have no gradient; for a gradient of all of "
                    "them list all, or pass t.to_dense() and make func of that"
                )
            made[i] = functools.partial(
                sparse_coo_tensor, t._indices(), size=tuple(t.shape), is_coalesced=t.is_coalesced()
            )
            arguments[i] = t._values().clone().requires_grad_()

    def input_of(i: int, given: Any) -> Any:
        if i not in made:
            return given
        t = made[i](given)
        if t.requires_grad:
            t.register_hook(functools.partial(_check_sparse_form, t.sparse_dim(), t.dense_dim()))
        return t

    def of_values(*args: Any) -> Any:
        return func(*[input_of(i, a) for i, a in enumerate(args)])

    return (of_values if made else func), tuple(arguments)


def _check_outputs(outputs: Sequence[Any]) -> None:
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise ValueError(
                f"gradcheck expects fn to return tensors, but output {i} is of type "
                f"{type(output).__name__}; leave it out: gradcheck(lambda *args: fn(*args)[0], ...)"
            )
    if any(getattr(o, "_is_sparse", False) for o in outputs):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense() on the output "
            "of fn for gradcheck."
        )


def _run(func: Callable[..., Any], inputs: tuple[Any, ...], rules: _Rules) -> None:
    def checked(*args: Any) -> Any:
        outputs = func(*args)
        _check_outputs(sequence(outputs))
        return outputs

    case = Case(checked, inputs)
    if not case.results:
        _check_constant(case, rules)
        return
    (_check_fast if rules.fast_mode else _check_slowly)(case, rules)
    if rules.check_forward_ad and rules.check_undefined_grad:
        _check_undefined_tangents(case)
    if rules.check_batched_forward_grad:
        _check_batched_tangents(case)
    if not rules.check_backward_ad:
        return
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
    check_batched_forward_grad: bool = False,
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
        Those that require grad are checked; they should be float64 or complex128. A function that
        finds them elsewhere (a layer's parameters) is checked too.
    eps : float
        Step of the differences.
    atol, rtol : float
        The gradients may differ by ``atol + rtol * |numerical|``.
    raise_exception : bool
        False: return False instead of raising `GradcheckError`; other errors still pass.
    nondet_tol : float
        How far two backward passes may differ.
    check_undefined_grad : bool
        Also that undefined output gradients (and tangents) are accepted and count as zeros.
    check_grad_dtypes : bool
        Accepted for compatibility: gradients of another type than their input never pass here.
    check_batched_grad, check_batched_forward_grad : bool
        Also that batched passes agree with single ones.
    check_forward_ad, check_backward_ad : bool
        Which modes to check; at least one.
    fast_mode : bool
        Compare one random direction instead of all elements.
    masked : bool, optional
        Gradients for output gradients of zero may be nearly zero. For sparse inputs that do
        not list all elements it must be True: only those listed are moved, and have a gradient.

    Returns
    -------
    bool

    Raises
    ------
    GradcheckError
        If a check fails.
    ValueError
        If no input requires grad, and for sparse outputs.
    AssertionError
        For arguments that contradict each other, and for a function whose results change their
        shape or type.
    """
    _agree(check_forward_ad or check_backward_ad, "check_forward_ad", "check_backward_ad")
    _needs("check_batched_grad", check_batched_grad, "check_backward_ad", check_backward_ad)
    _needs(
        "check_batched_forward_grad",
        check_batched_forward_grad,
        "check_forward_ad",
        check_forward_ad,
    )
    rules = _Rules(
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_batched_forward_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
        masked,
    )
    arguments = sequence(inputs)
    _check_inputs(arguments)
    func, arguments = _of_values(func, arguments, masked)
    try:
        _run(func, arguments, rules)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _agree(either: bool, a: str, b: str) -> None:
    if not either:
        raise AssertionError(f"Expected at least one of {a} or {b} to be True")


def _needs(name: str, enabled: bool, other: str, have: bool) -> None:
    if enabled and not have:
        raise AssertionError(f"Setting {name}=True requires {other} to be True")


def _random_cotangents(outputs: Sequence[Tensor], strided: bool) -> Iterator[Tensor]:
    random = xp.random.default_rng(_SEED)
    for output in outputs:
        shape = (*output.shape, 2) if strided else tuple(output.shape)
        array = random.uniform(-1, 1, shape)
        if output.dtype.is_complex:
            array = array + 1j * random.uniform(-1, 1, shape)
        made = like(array, output)
        yield (made[..., 0] if strided else made).requires_grad_()


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in sequence(outputs) if isinstance(o, Tensor) and o.requires_grad]


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

    The other parameters are those of `gradcheck`.

    Parameters
    ----------
    grad_outputs : Tensor or tuple, optional
        Gradients of the outputs; random if left out.
    gen_non_contig_grad_outputs : bool
        Make the random ones strided.
    check_fwd_over_rev, check_rev_over_rev : bool
        Differentiate the gradient forward, backward, or both ways.
    """
    _agree(check_fwd_over_rev or check_rev_over_rev, "check_fwd_over_rev", "check_rev_over_rev")
    for name, asked in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
    ):
        _needs(name, asked, "check_rev_over_rev", check_rev_over_rev)
    arguments = sequence(inputs)
    if grad_outputs is None:
        outputs = _differentiable(func(*arguments))
        sent = tuple(_random_cotangents(outputs, gen_non_contig_grad_outputs))
    else:
        sent = sequence(grad_outputs)
    every = (*arguments, *sent)
    marked = [i for i, t in enumerate(every) if isinstance(t, Tensor) and t.requires_grad]

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        for i in marked:  # forward mode passes duals of detached tensors
            args[i].requires_grad_()
        values, cotangents = args[: len(arguments)], args[len(arguments) :]
        results = _differentiable(func(*values))
        targets = [values[i] for i in marked if i < len(arguments)]
        grads = grad(results, targets, cotangents, create_graph=True, allow_unused=True)
        return tuple([g for g in grads if g is not None])

    return gradcheck(
        gradient,
        every,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# --- PyTorch's older functions --------------------------------------------------------------------


def _as_they_were(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )
    warnings.warn(
        f"{name} was part of PyTorch's private API and not meant to be exposed. We are deprecating "
        "it and it will be removed in a future version of PyTorch. If you have a specific use for "
        "this or feature request for this to be a stable API, please file us an issue at "
        "https://github.com/pytorch/pytorch/issues/new",
        FutureWarning,
        stacklevel=3,
    )


def _get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    outputs: Any = None,
    target: Any = None,
    eps: float = 1e-3,
    is_forward_ad: bool = False,
) -> list[tuple[Tensor, ...]]:
    """The Jacobians of a function by central differences, a tuple over outputs for each input.

    Each has a row for each element of the input and a column for each of the output. They are those
    with respect to ``target``, which ``fn`` may find elsewhere; by default to the inputs that
    require grad.
    """
    targets = sequence(inputs if target is None else target)
    if any(isinstance(t, Tensor) and t._is_sparse and t.requires_grad for t in targets):
        raise NotImplementedError("_get_numerical_jacobian: pass x.to_dense() of sparse inputs")
    case = Case(lambda *_: fn(*inputs), targets)
    found = []
    for position in case.positions:
        values = case.values_at(position, host(targets[position]))
        if any(v.dtype.is_complex for v in values):
            raise ValueError(
                "Expected output to be non-complex. get_numerical_jacobian no longer supports "
                "functions that return complex outputs."
            )
        tables = zip(numerical(case, position, eps), values, strict=True)
        found.append(
            tuple(
                [
                    from_array(backward_form(lists, REAL[0], v.numel())).to(v.device)
                    for lists, v in tables
                ]
            )
        )
    return found


def get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Any,
    target: Any = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[Tensor, ...]:
    """The Jacobians of the first output of ``fn(inputs)``, as `_get_numerical_jacobian` has them.

    FutureWarning, as in PyTorch; ValueError for another ``grad_out`` than 1.
    """
    _as_they_were("get_numerical_jacobian", grad_out)
    found = _get_numerical_jacobian(lambda *given: fn(given), sequence(inputs), None, target, eps)
    return tuple([outputs[0] for outputs in found])


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """The Jacobians of an output by backward passes, and whether a second time gives the same.

    FutureWarning, as in PyTorch; ValueError for another ``grad_out`` than 1 and complex outputs.

    Returns
    -------
    jacobians : tuple of Tensor
        For each input that requires grad.
    reentrant, correct_grad_sizes, correct_grad_types : bool
    """
    _as_they_were("get_analytical_jacobian", grad_out)
    if output.dtype.is_complex:
        raise ValueError(
            "Expected output to be non-complex. get_analytical_jacobian no longer supports "
            "functions that return complex outputs."
        )
    targets = [t for t in sequence(inputs) if isinstance(t, Tensor) and t.requires_grad]
    (part,) = parts_of(output)
    first, again = (backward_jacobians(output, targets, part) for _ in range(2))
    reentrant = all(
        not a.size or float(abs(a - b).max()) <= nondet_tol for a, b in zip(first, again)
    )
    gradients = pull(output, targets, like(xp.ones(tuple(output.shape)), output))
    pairs = [(g, t) for g, t in zip(gradients, targets) if g is not None]
    return (
        tuple([from_array(a).to(output.device) for a in first]),
        reentrant,
        all(g.shape == t.shape for g, t in pairs),
        all(g.dtype is t.dtype for g, t in pairs),
    )
