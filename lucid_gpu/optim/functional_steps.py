"""Steps of optimizers as functions of lists: `adam.adam`, `sgd.sgd` and the like, as in PyTorch.

Each makes one step of its class, of which the lists are the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.tape.modes import set_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = ["step_of_lists"]

States = dict[str, Sequence[Any]]


def step_of_lists(
    kind: type[Optimizer],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: States,
    state_steps: Sequence[Tensor] = (),
    *,
    differentiable: bool = False,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Change parameters, states and counts in place by one step of an optimizer.

    Parameters
    ----------
    kind : type
        A class of `lucid_gpu.optim`.
    params, grads : sequence of Tensor
    states : dict of str to sequence
        States by their names, one of each parameter; None for one that there is not yet.
    state_steps : sequence of Tensor
        How many steps were made, as numbers in tensors.
    differentiable : bool
    grad_scale, found_inf : Tensor, optional
        Gradients are divided by the one; where the other is not zero, nothing is done.
    **settings
        Those of the class.

    Returns
    -------
    list of dict
        The states, among which are those that there were not yet.

    Raises
    ------
    ValueError, RuntimeError
        What the class refuses.
    """
    if found_inf is not None and found_inf.item():
        return [{} for _ in params]
    if grad_scale is not None:
        grads = [g / grad_scale for g in grads]
    optimizer = kind(params, **settings, differentiable=differentiable)  # type: ignore[call-arg]
    members = []
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        state = optimizer.state[p]
        state.update({k: column[i] for k, column in states.items() if column[i] is not None})
        if state_steps:
            state["step"] = float(state_steps[i])
        members.append((p, g, state))
    with set_grad_enabled(differentiable):
        optimizer._refuse(members)
        optimizer._update_or_restore(optimizer.param_groups[0], members)
        for count in state_steps:
            count.add_(1)
    return [state for _, _, state in members]
