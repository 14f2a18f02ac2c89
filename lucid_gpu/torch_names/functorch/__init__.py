"""`functorch`, as PyTorch still installs it: `lucid_gpu.func` under its first names.

Each function works, after a FutureWarning that names the one to use.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NoReturn, TypeVar

from lucid_gpu import Tensor, func, stack
from lucid_gpu.nn import Module
from lucid_gpu.version import __version__

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "make_fx",
    "vjp",
    "vmap",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _deprecated(function: _Function, instead: str = "") -> _Function:
    """The function, which warns when it is called."""
    name = function.__name__
    new = instead or f"torch.func.{name}"

    @functools.wraps(function)
    def warned(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            "We've integrated functorch into PyTorch. As the final step of the integration, "
            f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future "
            f"version of PyTorch >= 2.3. Please use `{new}` instead; see the PyTorch 2.0 release "
            "notes and/or the `torch.func` migration guide for more details "
            "https://pytorch.org/docs/main/func.migrating.html",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return warned  # type: ignore[return-value]


functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp = [
    _deprecated(getattr(func, name))
    for name in (
        *("functionalize", "grad", "grad_and_value", "hessian"),
        *("jacfwd", "jacrev", "jvp", "vjp"),
    )
]
vmap = _deprecated(func.vmap, "torch.vmap")


class FunctionalModuleWithBuffers(Module):
    """A module that is called with its parameters and buffers before its arguments."""

    def __init__(self, model: Module, names: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.stateless_model = model
        self.names = names

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module with other parameters, and buffers, than it has."""
        tables = args[: len(self.names)]
        state = {
            name: value
            for names, values in zip(self.names, tables, strict=True)
            for name, value in zip(names, values, strict=True)
        }
        return func.functional_call(self.stateless_model, state, args[len(self.names) :], kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module that is called with its parameters before its arguments."""


def _copy(model: Module, disable_autograd_tracking: bool) -> tuple[Module, dict[str, Any]]:
    copy = deepcopy(model)
    parameters: dict[str, Any] = dict(copy.named_parameters())
    if disable_autograd_tracking:
        for parameter in parameters.values():
            parameter.requires_grad_(False)
    return copy, parameters


def _make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """A copy of a module as a function of its parameters, and these.

    Parameters
    ----------
    model : Module
    disable_autograd_tracking : bool
        Whether the parameters returned require no grad.

    Returns
    -------
    function, parameters
    """
    copy, parameters = _copy(model, disable_autograd_tracking)
    if any(True for _ in copy.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    return FunctionalModule(copy, [list(parameters)]), tuple(parameters.values())


def _make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A copy of a module as a function of its parameters and buffers, and these.

    Parameters
    ----------
    model : Module
    disable_autograd_tracking : bool
        Whether the parameters returned require no grad.

    Returns
    -------
    function, parameters, buffers
    """
    copy, parameters = _copy(model, disable_autograd_tracking)
    buffers: dict[str, Any] = dict(copy.named_buffers())
    function = FunctionalModuleWithBuffers(copy, [list(parameters), list(buffers)])
    return function, tuple(parameters.values()), tuple(buffers.values())


def _combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Several models of one class as one function, and their parameters and buffers, stacked.

    Returns
    -------
    function, parameters, buffers
        For `vmap`; the models are counted by the first dimension, and the parameters are leaves.
    """
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode."
        )
    if len({type(model) for model in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to be of the same class."
        )
    functions, parameters, buffers = zip(
        *[_make_functional_with_buffers(model) for model in models], strict=True
    )
    stacked = [
        tuple([stack(row).detach() for row in zip(*columns, strict=True)])
        for columns in (parameters, buffers)
    ]
    return functions[0], tuple([p.requires_grad_() for p in stacked[0]]), stacked[1]


def make_fx(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: there is no tracer, and no FX graph.

    Raises
    ------
    RuntimeError
    """
    raise RuntimeError(
        "functorch.make_fx: functions are not traced to FX graphs; func.vjp and func.jvp take them "
        "as they are"
    )


for _function in (_make_functional, _make_functional_with_buffers, _combine_state_for_ensemble):
    _function.__name__ = _function.__name__[1:]
make_functional = _deprecated(_make_functional, "torch.func.functional_call")
make_functional_with_buffers = _deprecated(
    _make_functional_with_buffers, "torch.func.functional_call"
)
combine_state_for_ensemble = _deprecated(
    _combine_state_for_ensemble, "torch.func.stack_module_state"
)
