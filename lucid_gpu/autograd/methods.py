"""What is known of a custom Function's methods: their form, forward's parameters and defaults."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, NoReturn

from lucid_gpu.tensor import Tensor


class Methods:
    """Found out once a class.

    Attributes
    ----------
    backward : callable
        ``backward(ctx, *grad_outputs)``, whatever it is called and however it was declared.
    separate : bool
        Whether forward takes no ctx, and `setup_context` does.
    names : list of str
        Forward's positional parameters, ctx left out.
    required : int
        How many positional arguments leave nothing to bind.
    """

    __slots__ = ("backward", "names", "required", "separate", "signature")

    def __init__(self, function: Any, base: Any) -> None:
        self.backward = _backward_of(function, base)
        self.separate = function.setup_context is not base.setup_context
        self.signature = _signature_of(function.forward)
        parameters = list(self.signature.parameters.values())
        if not self.separate:
            parameters = parameters[1:]
        self.names = [
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        self.required = len(self.names) + any(p.kind is p.KEYWORD_ONLY for p in parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, int]:
        """Bind arguments as forward would.

        Returns
        -------
        args, kwargs, defaulted
            Positional and keyword-only arguments, and how many of the first, from the end, are
            defaults: backward may leave their gradients off.
        """
        lead = 0 if self.separate else 1
        try:
            bound = self.signature.bind(*(None,) * lead, *args, **kwargs)
        except TypeError:
            return args, kwargs, 0  # calling forward says it in Python's words
        passed = len(bound.args)
        bound.apply_defaults()
        _refuse_gradients(bound.kwargs)
        return bound.args[lead:], bound.kwargs, len(bound.args) - passed

    def parameter_names(self, count: int) -> list[str]:
        """What to call the first arguments in an error."""
        return (self.names + [f"argument {i}" for i in range(len(self.names), count)])[:count]


def _signature_of(forward: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(forward)
    except ValueError:  # written in C, and silent about it
        return inspect.signature(lambda *args, **kwargs: None)


def _backward_of(function: Any, base: Any) -> Callable[..., Any]:
    own = function.backward is not base.backward
    if own and function.vjp is not base.vjp:
        return _refuse_both
    backward: Callable[..., Any] = function.backward if own else function.vjp
    if function.boxed_grads_call:
        return lambda ctx, *grads: backward(ctx, list(grads))
    if not isinstance(backward, types.FunctionType):  # a classmethod: the node would not bind it
        return lambda ctx, *grads: backward(ctx, *grads)
    return backward


def _refuse_both(*_: Any) -> NoReturn:
    raise RuntimeError(
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should "
        "only implement one of them."
    )


def _refuse_gradients(keywords: dict[str, Any]) -> None:
    """Backward returns gradients of positional arguments."""
    for name, value in keywords.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(
                f"apply() got a tensor that requires grad for {name}, which forward takes by "
                "keyword only: backward returns gradients of positional arguments. Let forward "
                f"take {name} by position, or pass {name}.detach()."
            )
