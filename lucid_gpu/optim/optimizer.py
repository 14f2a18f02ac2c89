"""The base of all optimizers: parameter groups, state, and one fused update."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_float
from typing import Any, ClassVar

from lucid_gpu.compat.module_names import beside
from lucid_gpu.dtypes import dtype, float32, float64, get_default_dtype
from lucid_gpu.nn.parameter import forget_gradients
from lucid_gpu.ops.complex_views import view_as_real
from lucid_gpu.ops.creation import full_like, tensor, zeros_like
from lucid_gpu.ops.foreach import Rule, grouped, held_here, update_in_place
from lucid_gpu.optim.hooks import (
    Hooked,
    changed_by,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.modes import enable_grad, no_grad
from lucid_gpu.tape.overrides import handling
from lucid_gpu.tensor import Tensor

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

Row = tuple[Tensor, ...]  # a parameter, its states, its gradient


def update_listed(
    rule: Rule, rows: Sequence[Row], numbers: dict[str, Any] | None, settings: dict[str, Any]
) -> list[Row]:
    """Apply a rule where gradients are sparse; the members that have dense ones are returned.

    What a gradient does not list stays as it is, be it of rows or of elements.
    """
    dense: list[Row] = []
    for *tensors, g in rows:
        if not g._is_sparse:
            dense.append((*tensors, g))
            continue
        g = g.coalesce()
        listed = g.indices().unbind(0)
        taken = [t[listed] for t in tensors]
        for t, new in zip(tensors, rule(*taken, g.values(), **(numbers or {}), **settings)):
            t.index_put_(listed, new)
    return dense


def number_type() -> dtype:
    """Return the type of the tensors that numbers among states are in a `state_dict`."""
    return float64 if get_default_dtype() is float64 else float32


def rounded(number: Any) -> Any:
    """Return a number as such a tensor holds it: PyTorch's rules compute with what it holds."""
    exact = number_type() is float64 or isinstance(number, Tensor)  # differentiated, as a state
    return number if exact else c_float(number).value


Group = dict[str, Any]
Member = tuple[Tensor, Tensor, dict[str, Any]]  # a parameter, its gradient, its state


# Asked to make an update in the place of an optimizer: it returns whether it did.
_updater: Callable[[Any, Group, list[Member]], bool] | None = None


def update_by(updater: Callable[[Any, Group, list[Member]], bool] | None) -> None:
    """Ask ``updater(optimizer, group, members)`` for each update first; None ends that.

    It returns whether it has made the update.
    """
    global _updater
    _updater = updater


class Optimizer(Hooked):
    """Base class of optimizers, which change parameters by their gradients.

    A subclass gives `defaults` to ``__init__`` and defines `_update`, which says for the members of
    one group, each a parameter with its gradient and state, what the new values are; or it defines
    `step`.

    Parameters
    ----------
    params : iterable of Tensor, any shapes, of (str, Tensor) or of dict
        Parameters, or groups: dicts with a ``"params"`` entry and settings of their own.
    defaults : dict
        Settings of groups that have none of their own.

    Attributes
    ----------
    param_groups : list of dict
    state : dict of Tensor to dict
        The state of each parameter.

    Raises
    ------
    TypeError, ValueError
        For parameters that are not tensors or not leaves; see also `add_param_group`.
    """

    _numbers: ClassVar[tuple[str, ...]] = ()  # states that are numbers here, tensors when saved
    _takes_sparse: ClassVar[bool] = False
    _reads_whole: ClassVar[bool] = False  # is a step of an element more than its own numbers
    _takes_complex: ClassVar[bool] = True
    _listed = False  # whether a gradient that lists rows was ever seen
    _repeats = False  # whether a group has a parameter twice
    _updated: list[dict[str, Any]]  # states of the members that the step going on has updated

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        super().__init__()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        entries = list(params)
        if not entries:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(entries[0], dict):
            entries = [{"params": entries}]
        for group in entries:
            self.add_param_group(group)

    # -- groups -----------------------------------------------------------------------------

    def _accelerator_graph_capture_health_check(self) -> None:
        """Nothing: steps in a graph are checked where they are captured."""

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with settings of their own.

        Raises
        ------
        TypeError
            For anything but a tensor.
        ValueError
            For tensors that are not leaves or in another group, and for missing settings.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        group["params"] = _as_list(group["params"])
        _take_names(group, self.param_groups)
        for parameter in group["params"]:
            _check_parameter(parameter, self.defaults)
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
            self._repeats = True
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=3,
            )
        if known & set(own):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient, or with ``set_to_none=False`` fill it with zeros."""
        for group in self.param_groups:
            forget_gradients(group["params"], set_to_none)

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

        Raises
        ------
        RuntimeError
            For gradients and parameters of a kind that the rule is not for, as sparse or complex
            ones.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        mode = enable_grad if self.defaults.get("differentiable", False) else no_grad
        with mode():
            for group in self.param_groups:
                members = [
                    (p, g, self.state[p]) for p in group["params"] if (g := p.grad) is not None
                ]
                if members and self._repeats:
                    self._refuse(members)
                    for member in members:  # the second update of a parameter reads the first
                        self._update_or_restore(group, [member])
                elif members:
                    self._refuse(members)
                    if _updater is None or not _updater(self, group, members):
                        self._update_or_restore(group, members)
        return loss

    def _update_or_restore(self, group: Group, members: list[Member]) -> None:
        """Update; if that fails, states of members that were not updated are as before."""
        before = [{**state} for _, _, state in members]
        self._updated = []
        try:
            self._update(group, members)
        except BaseException:
            updated = {id(state) for state in self._updated}
            for (_, _, state), values in zip(members, before, strict=True):
                if id(state) not in updated:
                    state.clear()
                    state.update(values)
            raise
        finally:
            self._updated = []

    def _refuse(self, members: list[Member]) -> None:
        """Raise for what no rule here is written for."""
        name = type(self).__name__
        for p, g, _ in members:
            if g._is_sparse:
                self._listed = True
                if not self._takes_sparse:
                    raise RuntimeError(
                        f"{name} does not support sparse gradients, please consider SparseAdam "
                        "instead, or call .to_dense() first"
                    )
            if self._reads_whole and hasattr(p, "sharding"):
                raise NotImplementedError(
                    f"{name} reads whole parameters, and each rank has some rows of them after "
                    "fully_shard; optimizers like AdamW and SGD work on rows"
                )
            kind = (p if handling else p._expr.program).dtype.category  # a DTensor has no value
            if kind < 2:
                raise RuntimeError(
                    f"{name} does not support parameters of {p.dtype.name}: gradient steps are "
                    "fractions; use p.float()"
                )
            if kind > 2 and not self._takes_complex:
                raise RuntimeError(
                    f"{name} does not support complex parameters: make the real and the imaginary "
                    "part a parameter each, and put them together with lucid_gpu.complex"
                )

    def _update(self, group: Group, members: list[Member]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _update(group, members)")

    def _apply(
        self,
        rule: Rule,
        members: list[Member],
        states: tuple[str, ...] = (),
        numbers: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Replace parameters and states by what ``rule`` makes of them and of the gradients.

        ``rule(parameter, *states, gradient, **numbers, **settings)`` returns the new parameter and
        states. ``numbers`` change from step to step, ``settings`` hardly ever: the rule is traced
        for each. Settings that are numbers other than zero are such ``numbers`` too.
        """
        counting = {k: v for k, v in settings.items() if type(v) in (float, int) and v}
        settings = {k: v for k, v in settings.items() if k not in counting}
        numbers = {**(numbers or {}), **counting}
        parameters, gradients, kept = zip(*members, strict=True)
        columns = [[state[name] for state in kept] for name in states]
        rows: Sequence[Row] = [*zip(parameters, *columns, gradients, strict=True)]
        if handling:
            rows = held_here(rows)
        if max([row[0]._expr.program.dtype.category for row in rows]) > 2:
            # Moments are of real and imaginary parts, each for itself, as in PyTorch.
            rows = [tuple([view_as_real(t) if t.is_complex() else t for t in r]) for r in rows]
        if self._listed:
            rows = update_listed(rule, rows, numbers, settings)
        if rows and not self.defaults.get("differentiable"):
            update_in_place(rule, rows, 1 + len(states), numbers, **settings)
        else:
            for row in rows:
                # of copies: what the rule saves for backward is written here
                results = rule(*[t.clone() for t in row], **numbers, **settings)
                for t, new in zip(row, results, strict=False):
                    t.copy_(new)
        self._updated += kept

    def _begin(
        self, members: list[Member], states: tuple[str, ...] = (), /, **numbers: float
    ) -> None:
        """One step more; what a parameter does not have yet is zero, or these numbers."""
        fresh = [*numbers.items()]
        for p, _, state in members:
            state["step"] = float(state["step"]) + 1.0 if "step" in state else 1.0
            for name, value in fresh:
                if name not in state:
                    state[name] = value
            for name in states:
                if name not in state:
                    state[name] = zeros_like(p)

    def _alike(self, members: list[Member]) -> dict[tuple[float, ...], list[Member]]:
        """Members by the numbers among their states: one update for all that are equally old."""
        columns = [[state[name] for _, _, state in members] for name in self._numbers]
        return grouped([*zip(*columns, strict=True)], members)

    # -- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": ..., "param_groups": ...}``, with parameters replaced by their numbers."""
        for hook in list(self._saving.values()):
            hook(self)
        number: dict[int, int] = {}
        count = itertools.count()
        for group in self.param_groups:  # the last number in a group, of the first that has it
            number = {id(p): next(count) for p in group["params"]} | number
        groups = [
            {k: v for k, v in group.items() if k != "params"}
            | {"params": [number[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {
            number[id(p)] if isinstance(p, Tensor) else p: self._saved_values(values)
            for p, values in self.state.items()
            if values != {}
        }
        return changed_by(self._saved, self, {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and settings from a `state_dict` of an optimizer over like parameters.

        States are copied, to the device and type of their parameters.

        Raises
        ------
        ValueError
            If the groups differ in number or size. Nothing has been loaded then.
        """
        state_dict = changed_by(self._loading, self, dict(state_dict))
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                "loaded state dict has a different number of parameter groups: it has "
                f"{len(groups)}, this optimizer {len(self.param_groups)}"
            )
        for saved, own in zip(groups, self.param_groups, strict=True):
            if len(saved["params"]) != len(own["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: {len(saved['params'])} parameters against "
                    f"{len(own['params'])}"
                )
        by_number = {
            k: p
            for saved, own in zip(groups, self.param_groups, strict=True)
            for k, p in zip(saved["params"], own["params"], strict=True)
        }
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for k, values in state_dict["state"].items():
            p = by_number.get(int(k) if isinstance(k, str) and k.isdigit() else k)
            state[k if p is None else p] = values if p is None else self._taken("", values, p)
        groups = [_settings_of(s, own) for s, own in zip(groups, self.param_groups, strict=True)]
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._loaded.values()):
            hook(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what was pickled or loaded; subclasses give groups of old files new settings."""
        self.__dict__.update(state)
        for group in self.param_groups:
            for name, value in _NEWER_SETTINGS.items():
                if name in self.defaults:
                    group.setdefault(name, value)

    def _saved_values(self, values: Any) -> Any:
        """What a state is in a `state_dict`: its numbers as tensors."""
        if not isinstance(values, dict):
            return values
        kind = number_type()
        return {k: tensor(v, dtype=kind) if k in self._numbers else v for k, v in values.items()}

    def _taken(self, name: str, value: Any, p: Tensor) -> Any:
        """A copy of a saved state."""
        if name in self._numbers:
            return float(value)
        if isinstance(value, Tensor):
            if name == "step":
                return value.detach().clone()
            dtype = p.dtype if p.is_floating_point() else value.dtype
            return value.detach().clone().to(p.device, dtype)
        if isinstance(value, dict):
            return {k: self._taken(k, v, p) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self._taken("", v, p) for v in value])
        return copy.deepcopy(value)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            lines = [f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params"]
            text += f"\nParameter Group {i}\n" + "".join(lines)
        return text + ")"

    def _repr_html_(self) -> str:
        from lucid_gpu.viz.notebook import optimizer_html

        return optimizer_html(self)


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def counts(number: Tensor | float) -> bool:
    """Whether a setting that a rule is given is anything but zero."""
    return isinstance(number, Tensor) or number != 0


def descent(p: Tensor, g: Tensor, weight_decay: Tensor | float, maximize: bool) -> Tensor:
    """The gradient that rules descend by: its negative to maximize, with L2 decay added."""
    if maximize:
        g = -g
    return g + p * weight_decay if counts(weight_decay) else g


def moments(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    kept: Tensor,
    new: Tensor,
    old_square: Tensor,
    new_square: Tensor,
    weight_decay: Tensor | float,
    decoupled_weight_decay: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How rules of Adam's family begin: decay, and running means of ``g`` and of its square."""
    g = descent(p, g, 0 if decoupled_weight_decay else weight_decay, maximize)
    if counts(weight_decay) and decoupled_weight_decay:
        p = p * kept
    return p, m + (g - m) * new, v * old_square + g * g * new_square, g


def filled_as(p: Tensor, value: float) -> Tensor:
    """A state of a parameter, each real number of it, or each part of a complex one, ``value``."""
    return full_like(p, complex(value, value) if p.is_complex() else value)


def shares(betas: tuple[float, float]) -> dict[str, float]:
    """What `moments` takes of old and new; numbers, since schedulers may change betas each step."""
    b1, b2 = betas
    return {"new": 1 - b1, "old_square": b2, "new_square": 1 - b2}


def _as_list(params: Any) -> list[Any]:
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of "
            "tensors in sets will change between runs. Please use a list instead."
        )
    return list(params)


def _take_names(group: Group, others: list[Group]) -> None:
    """Parameters may come with names, as from ``model.named_parameters()``."""
    named = [isinstance(p, tuple) for p in group["params"]]
    if any(named):
        if not all(named):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        group["param_names"] = [name for name, _ in group["params"]]
        group["params"] = [p for _, p in group["params"]]
    if any(("param_names" in group) != ("param_names" in other) for other in others):
        form = "with names" if "param_names" in group else "without names"
        raise ValueError(
            "all optimizer param groups should be with/without names. "
            f"cannot add param group {form} to the optimizer"
        )


def _check_parameter(parameter: Any, defaults: dict[str, Any]) -> None:
    if not isinstance(parameter, Tensor):
        raise TypeError(
            f"optimizer can only optimize Tensors, but one of the params is {type_name(parameter)}"
        )
    if not (defaults.get("differentiable") or parameter.is_leaf or parameter.retains_grad):
        raise ValueError("can't optimize a non-leaf Tensor")


# Settings that state dicts written by earlier versions of PyTorch lack, and what held then.
_NEWER_SETTINGS = {
    "amsgrad": False,
    "nesterov": False,
    "maximize": False,
    "foreach": None,
    "fused": None,
    "capturable": False,
    "differentiable": False,
    "decoupled_weight_decay": False,
    "centered": False,
    "momentum": 0,
}


def _settings_of(saved: Group, own: Group) -> Group:
    group = {k: own["params"] if k == "params" else copy.deepcopy(v) for k, v in saved.items()}
    if "param_names" in own:
        group.setdefault("param_names", own["param_names"])
    return group


# What PyTorch's own optimizers are made of
__getattr__ = beside(
    globals(),
    {
        "lucid_gpu._optimizer": "ParamsT _capturable_doc _default_to_fused_or_foreach "
        "_device_dtype_check_for_fused _differentiable_doc _disable_dynamo_if_unsupported "
        "_foreach_doc _fused_doc _get_capturable_supported_devices _get_scalar_dtype _get_value "
        "_maximize_doc _params_doc _stack_if_compiling _to_scalar _use_grad_for_differentiable "
        "_view_as_real"
    },
)
