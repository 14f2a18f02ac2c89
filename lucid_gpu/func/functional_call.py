"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lucid_gpu.nn.modules.batchnorm import _BatchNorm
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]

State = dict[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with these tensors in place of its parameters and buffers.

    Parameters
    ----------
    module : Module
    parameter_and_buffer_dicts : dict of str to Tensor, or a sequence of such
        By dotted name, as `Module.named_parameters` gives them. What is not named stays the
        module's own. A buffer that the module writes in place is written in the dictionary.
    args : tuple or anything else
        Arguments of the call; what is not a tuple is the only one.
    kwargs : dict, optional
    tie_weights : bool
        Whether a tensor that the module holds under two names is replaced under both.
    strict : bool
        Whether every parameter and buffer must be given, and nothing else.

    Returns
    -------
    Whatever the module returns.

    Raises
    ------
    TypeError
        For a value that is not a tensor.
    ValueError
        For names that several dictionaries have, and for different values of tied names.
    RuntimeError
        For names that the module does not have or that are left out under ``strict``.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.func import functional_call, grad
    >>> model = lucid_gpu.nn.Linear(2, 1)
    >>> params = {name: p.detach() for name, p in model.named_parameters()}
    >>> def loss(params, x):
    ...     return functional_call(model, params, (x,)).sum()
    >>> grad(loss)(params, lucid_gpu.ones(3, 2))["weight"]
    tensor([[3., 3.]])
    """
    replacements = _one_dict(parameter_and_buffer_dicts)
    for value in replacements.values():
        if not isinstance(value, Tensor):
            raise TypeError(f"{value!r} is not an instance of Tensor")
    named = _all_state(module)
    if strict:
        _check_names(module, replacements, named)
    if tie_weights:
        replacements = _tied(replacements, named)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, replacements, named):
        return module(*positional, **(kwargs or {}))


def _one_dict(dicts: Any) -> State:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    if not isinstance(dicts, Sequence) or not all(isinstance(d, Mapping) for d in dicts):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts)}"
        )
    names = [name for one in dicts for name in one]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is "
            "ambiguous"
        )
    return {name: value for one in dicts for name, value in one.items()}


def _all_state(module: Module) -> dict[str, Any]:
    named: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    named.update(module.named_buffers(remove_duplicate=False))
    return named


def _check_names(module: Module, replacements: State, named: dict[str, Any]) -> None:
    unexpected = [name for name in replacements if name not in named]
    missing = [name for name in named if name not in replacements]
    lines = [
        f"\n\t{what} key(s): " + ", ".join(map(repr, names)) + "."
        for what, names in (("Unexpected", unexpected), ("Missing", missing))
        if names
    ]
    if lines:
        kind = type(module).__name__
        raise RuntimeError(f"Error(s) in reparametrizing for {kind}:" + "".join(lines))


def _tied(replacements: State, named: dict[str, Any]) -> State:
    """The same replacement under every name of a tensor."""
    names_of: dict[int, list[str]] = {}
    for name, value in named.items():
        names_of.setdefault(id(value), []).append(name)
    result = dict(replacements)
    for names in names_of.values():
        chosen = [name for name in names if name in replacements]
        if len({id(replacements[name]) for name in chosen}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {names}, which are tied. Consider "
                "using tie_weights=False"
            )
        if chosen:
            result.update(dict.fromkeys(names, replacements[chosen[0]]))
    return result


@contextmanager
def _replaced(module: Module, replacements: State, named: dict[str, Any]) -> Iterator[None]:
    """The module with other tensors in its tables, for a while."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in replacements.items():
            if name not in named:
                continue
            path, _, own = name.rpartition(".")
            inner = module.get_submodule(path)
            table: dict[str, Any] = (
                inner._parameters if own in inner._parameters else inner._buffers
            )
            before.append((table, own, table[own]))
            table[own] = value
        yield
    finally:
        for table, own, value in reversed(before):
            table[own] = value


def stack_module_state(models: Sequence[Module]) -> tuple[State, State]:
    """The parameters and buffers of several models of one class, stacked for `vmap`.

    Returns
    -------
    parameters, buffers : dict of str to Tensor
        The models are counted by the first dimension; the parameters are new leaves.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    every = [dict(m.named_parameters()) for m in models]
    for name, p in every[0].items():
        if any(own[name].requires_grad is not p.requires_grad for own in every):
            raise RuntimeError(
                "Expected Parameters from each model to have the same .requires_grad: "
                f"{name} requires grad in some of them; call requires_grad_() on the others"
            )
    parameters = {
        name: stack([own[name].detach() for own in every])._mark(p.requires_grad)
        for name, p in every[0].items()
    }
    buffered = [dict(m.named_buffers()) for m in models]
    buffers = {name: stack([own[name] for own in buffered]) for name in buffered[0]}
    return parameters, buffers


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let all batch norms of a module use the statistics of the batch only, in place.

    Running statistics cannot be written under `vmap`: each example would write its own.

    Returns
    -------
    Module
        ``root``.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
