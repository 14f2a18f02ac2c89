"""The base of all optimizers: parameter groups, state, and one fused update."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.ops.foreach import Rule, update_in_place
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Optimizer"]

Group = dict[str, Any]
Member = tuple[Tensor, Tensor, dict[str, Any]]  # a parameter, its gradient, its state


class Optimizer:
    """Changes parameters by their gradients.

    A subclass gives `defaults` to ``__init__`` and defines `_update`, which says for the members of
    one group, each a parameter with its gradient and state, what the new values are.

    Parameters
    ----------
    params : iterable of Tensor, of (str, Tensor) or of dict
        Parameters, or groups: dicts with a ``"params"`` entry and settings of their own.
    defaults : dict
        Settings of groups that have none of their own.

    Attributes
    ----------
    param_groups : list of dict
    state : dict of Tensor to dict
        What is remembered of each parameter.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        given = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(given[0], dict):
            given = [{"params": given}]
        for group in given:
            self.add_param_group(group)

    # -- groups -----------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with settings of their own.

        Raises
        ------
        TypeError
            For what is no tensor.
        ValueError
            For tensors that are no leaves, that are in another group, or missing settings.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        group["params"] = _as_list(group["params"])
        _take_names(group)
        for parameter in group["params"]:
            _check_parameter(parameter)
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            group.setdefault(name, default)
        known = {id(p) for other in self.param_groups for p in other["params"]}
        own = [id(p) for p in group["params"]]
        if len(set(own)) != len(own):
            raise ValueError("optimizer contains a parameter group with duplicate parameters")
        if known & set(own):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient, or with ``set_to_none=False`` fill it with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = None if set_to_none else parameter.grad.detach().zero_()

    # -- stepping ---------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again, with gradients, and returns the loss.

        Returns
        -------
        What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                members = [
                    (p, g, self.state[p]) for p in group["params"] if (g := p.grad) is not None
                ]
                if members:
                    self._update(group, members)
        return loss

    def _update(self, group: Group, members: list[Member]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _update(group, members)")

    def _apply(
        self,
        rule: Rule,
        members: list[Member],
        states: tuple[str, ...] = (),
        numbers: dict[str, float] | None = None,
        **settings: Any,
    ) -> None:
        """Replace parameters and states by what ``rule`` makes of them and of the gradients.

        ``rule(parameter, *states, gradient, **numbers, **settings)`` returns the new parameter and
        states. ``numbers`` change from step to step, ``settings`` hardly ever: the rule is traced
        for each.
        """
        rows = [(p, *[state[name] for name in states], g) for p, g, state in members]
        update_in_place(rule, rows, 1 + len(states), numbers, **settings)

    def _begin(self, members: list[Member], states: tuple[str, ...]) -> None:
        """States that a parameter does not have yet are zeros."""
        for p, _, state in members:
            for name in states:
                if name not in state:
                    state[name] = p.detach().new_zeros(p.shape)

    # -- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": ..., "param_groups": ...}``, with parameters replaced by their numbers."""
        number: dict[int, int] = {}
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
        groups = [
            {**group, "params": [number[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {number[id(p)]: dict(values) for p, values in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and settings from a `state_dict` of an optimizer over like parameters.

        Raises
        ------
        ValueError
            Where the groups differ in number or size. Nothing has been loaded then.
        """
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                "loaded state dict has a different number of parameter groups: it has "
                f"{len(groups)}, this optimizer {len(self.param_groups)}"
            )
        for saved, own in zip(groups, self.param_groups):
            if len(saved["params"]) != len(own["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: {len(saved['params'])} parameters against "
                    f"{len(own['params'])}"
                )
        by_number = {
            k: p
            for saved, own in zip(groups, self.param_groups)
            for k, p in zip(saved["params"], own["params"])
        }
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for k, values in state_dict["state"].items():
            p = by_number[int(k)]
            state[p] = {name: _loaded(value, p) for name, value in values.items()}
        self.state = state
        self.param_groups = [
            {k: own["params"] if k == "params" else copy.deepcopy(v) for k, v in saved.items()}
            for saved, own in zip(groups, self.param_groups)
        ]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k != "params"]
        return "\n".join([*lines, ")"])


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _as_list(params: Any) -> list[Any]:
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of "
            "tensors in sets will change between runs. Please use a list instead."
        )
    return list(params)


def _take_names(group: Group) -> None:
    """Parameters may come with names, as from ``model.named_parameters()``."""
    if group["params"] and isinstance(group["params"][0], tuple):
        group["param_names"] = [name for name, _ in group["params"]]
        group["params"] = [p for _, p in group["params"]]


def _check_parameter(parameter: Any) -> None:
    if not isinstance(parameter, Tensor):
        raise TypeError(
            f"optimizer can only optimize Tensors, but one of the params is "
            f"{type(parameter).__name__}"
        )
    if not parameter.is_leaf:
        raise ValueError("can't optimize a non-leaf Tensor")


def _loaded(value: Any, parameter: Tensor) -> Any:
    """A copy of a saved state, on the parameter's device and of its type."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if tuple(value.shape) != tuple(parameter.shape):
        return value.item() if value.numel() == 1 else value.detach().clone()
    dtype = parameter.dtype if parameter.is_floating_point() else value.dtype
    return value.detach().clone().to(parameter.device, dtype)
