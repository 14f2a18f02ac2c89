"""Steps of optimizers as functions of lists: `adam.adam`, `sgd.sgd` and the like, as in PyTorch.

Each makes one step of its class, of which the lists are the state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lucid_gpu.optim.optimizer import Optimizer
from lucid_gpu.tape.modes import set_grad_enabled

__all__ = ["step_of_lists"]

IGNORED = ("foreach", "fused", "capturable", "has_complex", "has_sparse_grad")
PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}
ABSENT = ("foreach", "fused", "grad_scale", "found_inf")  # flags that are None by default


def step_of_lists(
    kind: type[Optimizer],
    states: dict[str, str],
    flags: str,
    settings: str,
    *,
    gradients: str = "grads",
    steps: tuple[str, ...] = ("state_steps",),
) -> Callable[..., None]:
    """A function that makes one step of an optimizer for lists of parameters, gradients and states.

    Parameters
    ----------
    kind : type
        A class of `lucid_gpu.optim`.
    states : dict of str to str
        The lists by their names, and which state of a parameter each has; None in a list stands
        for a state that there is not yet, and is replaced.
    flags : str
        Parameters that may be left out, in their order.
    settings : str
        Those that must be given by keyword.
    gradients : str
        The name of the list of gradients.
    steps : tuple of str
        The name of the list of numbers of steps, if there is one.

    Returns
    -------
    callable
    """
    kept = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(n, kept) for n in ("params", gradients, *states, *steps)]
        + [
            inspect.Parameter(n, kept, default=None if n in ABSENT else False)
            for n in flags.split()
        ]
        + [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in settings.split()]
    )

    def step(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        params, grads = given.pop("params"), given.pop(gradients)
        columns = {state: given.pop(name) for name, state in states.items()}
        counts = given.pop(steps[0]) if steps else ()
        scale, found_inf = given.pop("grad_scale", None), given.pop("found_inf", None)
        if found_inf is not None and found_inf.item():
            return
        if scale is not None:
            grads = [g / scale for g in grads]
        for name in IGNORED:
            given.pop(name, None)
        for name, pair in PAIRS.items():
            if pair[0] in given:
                given[name] = tuple([given.pop(part) for part in pair])
        optimizer = kind(params, **given)
        members = []
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            state = optimizer.state[p]
            for name, column in columns.items():
                if column and column[i] is not None:
                    number = name in kind._numbers
                    state[name] = float(column[i]) if number else column[i]
            if counts:
                state["step"] = float(counts[i])
            members.append((p, g, state))
        with set_grad_enabled(given.get("differentiable", False)):
            optimizer._refuse(members)
            optimizer._update_or_restore(optimizer.param_groups[0], members)
            for count in counts:
                count.add_(1)
        for name, column in columns.items():
            for i in range(len(column)):
                if column[i] is None:
                    column[i] = members[i][2].get(name)
                elif name in kind._numbers:
                    column[i].fill_(members[i][2][name])

    step.__name__ = step.__qualname__ = kind.__name__.lower()
    step.__doc__ = f"""One step of `{kind.__name__}` for lists of parameters, gradients and states.

    They are changed. Numbers of steps are numbers in tensors; gradients are divided by
    ``grad_scale``, and where ``found_inf`` is not zero nothing is done.
    """
    step.__signature__ = signature  # type: ignore[attr-defined]
    return step
