"""Functions of arrays with rules of the user's own: HIPS autograd's `primitive` and `defvjp`.

A rule is a function of cotangents or tangents, made for each argument. It is called with tensors,
so that a rule written in NumPy's functions is differentiated further.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.autograd.function import Function
from lucid_gpu.func.trees import Structure, flatten, leaves_of, unflatten
from lucid_gpu.numpy.calls import plain
from lucid_gpu.numpy.operands import as_tensor, first_tensor
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["defjvp", "defjvp_argnum", "defvjp", "defvjp_argnum", "primitive"]

Rule = Callable[..., Any]


class _Call:
    """What one call of a primitive is besides its tensors."""

    def __init__(self, primitive: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.primitive, self.kwargs = primitive, kwargs
        self.leaves, self.structure = flatten(args)
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        self.owners = [  # of each tensor, the number of its argument
            k for k, arg in enumerate(args) for v in leaves_of(arg) if isinstance(v, Tensor)
        ]
        self.result: Structure | None = None

    def arguments(self, tensors: Any) -> list[Any]:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(v, Tensor) else v for v in self.leaves]
        return list(unflatten(leaves, self.structure))

    def saved(self, saved: Any) -> tuple[Any, list[Any]]:
        """The result and the arguments, as a rule takes them."""
        count = len(self.tensors)
        assert self.result is not None  # forward has run
        return unflatten(saved[count:], self.result), self.arguments(saved[:count])

    def rule(self, kind: str, argnum: int, *rest: Any) -> Any:
        found = self.primitive.rules.get(kind)
        if found is None:
            raise NotImplementedError(
                f"{self.primitive.__name__} has no {kind}; declare one: "
                f"def{kind}({self.primitive.__name__}, ...)"
            )
        return found(argnum, *rest)


class _Primitive(Function):
    """A function of arrays, whose derivatives are the rules that were declared for it."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> Any:
        args = call.arguments([plain(t) for t in tensors])
        leaves, call.result = flatten(call.primitive.__wrapped__(*args, **call.kwargs))
        return tuple([as_tensor(v, tensors[0]).detach().clone() for v in leaves])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.call, *tensors = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.save_for_forward(*tensors, *output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: _Call, *tensors: Tensor) -> Any:
        rows = [
            _Primitive.apply(
                call,
                *[
                    t if d is None else t.select(d, i)
                    for t, d in zip(tensors, in_dims[1:], strict=True)
                ],
            )
            for i in range(info.batch_size)
        ]
        return tuple([stack(column) for column in zip(*rows, strict=True)]), 0

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        call = ctx.call
        answer, args = call.saved(ctx.saved_tensors)
        g, found = unflatten(cotangents, call.result), {}
        for argnum in {k for k, n in zip(call.owners, ctx.needs_input_grad[1:], strict=True) if n}:
            rule = call.rule("vjp", argnum, answer, args, call.kwargs)
            given = leaves_of(args[argnum] if rule is None else rule(g))
            found[argnum] = [
                None if rule is None else as_tensor(v, t)
                for v, t in zip(given, leaves_of(args[argnum]), strict=True)
                if isinstance(t, Tensor)
            ]
        rest = {argnum: iter(grads) for argnum, grads in found.items()}
        return None, *[next(rest[k]) if k in rest else None for k in call.owners]

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        call = ctx.call
        answer, args = call.saved(ctx.saved_tensors)
        along, total = call.arguments(tangents), None
        for argnum in dict.fromkeys(call.owners):
            moved = call.rule("jvp", argnum, along[argnum], answer, args, call.kwargs)
            if moved is not None:
                parts = [as_tensor(v) for v in leaves_of(moved)]
                total = (
                    parts if total is None else [a + b for a, b in zip(total, parts, strict=True)]
                )
        return tuple(total or [v * 0 for v in leaves_of(answer)])


def primitive(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fun`` as one step of differentiation, by rules that `defvjp` and `defjvp` declare.

    Parameters
    ----------
    fun : callable
        Of arrays, numbers and trees of them; it is called with arrays and never looked into, so
        it may use any library. Keyword arguments are constants.

    Returns
    -------
    callable
        Takes what ``fun`` takes, and tensors.

    Raises
    ------
    NotImplementedError
        When a derivative is asked for of which no rule was declared.
    TypeError
        When called with tensors as keyword arguments.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> from lucid_gpu.numpy.extend import defvjp, primitive
    >>> cube = primitive(lambda x: x**3)
    >>> defvjp(cube, lambda answer, x: lambda g: 3 * x**2 * g)
    >>> np.grad(np.grad(cube))(2.0)
    12.0
    """

    @functools.wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        if first_tensor(kwargs.values()) is not None:
            raise TypeError(
                f"{function.__name__} is a primitive, whose keyword arguments are constants; "
                "pass tensors by position"
            )
        call = _Call(function, args, kwargs)
        if not call.tensors:
            return fun(*args, **kwargs)
        outputs = _Primitive.apply(call, *call.tensors)
        assert call.result is not None
        return unflatten(outputs, call.result)

    function.rules = {}  # type: ignore[attr-defined]
    return function


def defvjp_argnum(fun: Callable[..., Any], maker: Rule) -> None:
    """Declare how cotangents go back: ``maker(argnum, answer, args, kwargs)`` gives the rule.

    Parameters
    ----------
    fun : callable
        What `primitive` returned.
    maker : callable
        Gives a function of the cotangent of ``answer`` to the gradient by argument ``argnum``, of
        its shape and structure; or None where that is zero. For complex numbers both are what
        PyTorch calls gradients, the conjugates of HIPS autograd's.
    """
    fun.rules["vjp"] = maker  # type: ignore[attr-defined]


def defvjp(fun: Callable[..., Any], *makers: Rule | None, argnums: Any = None) -> None:
    """Declare one rule for each argument: ``maker(answer, *args, **kwargs)``, or None for zero.

    ``argnums`` numbers the arguments that ``makers`` are for, by default from 0. Each maker gives
    what that of `defvjp_argnum` gives.
    """
    table = _by_argument(fun, makers, argnums)
    defvjp_argnum(
        fun,
        lambda argnum, answer, args, kwargs: (
            table(argnum) and table(argnum)(answer, *args, **kwargs)
        ),
    )


def defjvp_argnum(fun: Callable[..., Any], rule: Rule) -> None:
    """Declare how tangents go on: ``rule(argnum, tangent, answer, args, kwargs)`` gives a part.

    The parts of all arguments are summed; each has the shape and the structure of ``answer``.
    """
    fun.rules["jvp"] = rule  # type: ignore[attr-defined]


def defjvp(fun: Callable[..., Any], *rules: Rule | str | None, argnums: Any = None) -> None:
    """Declare one rule for each argument: ``rule(tangent, answer, *args, **kwargs)``.

    Parameters
    ----------
    *rules : callable, "same" or None
        "same" calls ``fun`` with the tangent in the place of the argument, for functions that are
        linear in it; None stands for zero.
    argnums : sequence of int, optional
        The arguments that ``rules`` are for, by default counted from 0.
    """
    table = _by_argument(fun, rules, argnums)

    def rule(argnum: int, tangent: Any, answer: Any, args: Any, kwargs: Any) -> Any:
        if table(argnum) == "same":
            return fun(*args[:argnum], tangent, *args[argnum + 1 :], **kwargs)
        return table(argnum) and table(argnum)(tangent, answer, *args, **kwargs)

    defjvp_argnum(fun, rule)


def _by_argument(fun: Any, rules: Any, argnums: Any) -> Callable[[int], Any]:
    table = dict(zip(range(len(rules)) if argnums is None else argnums, rules, strict=True))

    def of(argnum: int) -> Any:
        if argnum not in table:
            raise NotImplementedError(f"{fun.__name__} has no rule for argument {argnum}")
        return table[argnum]

    return of
