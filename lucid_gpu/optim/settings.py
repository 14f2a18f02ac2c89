"""How an optimizer declares its settings: its constructor's signature, checked by one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.tensor import Tensor

__all__ = ["chosen", "settings"]


def settings(arguments: dict[str, Any], *checked: str) -> dict[str, Any]:
    """A constructor's arguments as the defaults of its groups.

    Parameters
    ----------
    arguments : dict
        ``locals()`` of the constructor.
    *checked : str
        The settings that are checked, in this order, each by its row of `CHECKS` or for being
        negative.

    Raises
    ------
    ValueError, RuntimeError
        With PyTorch's sentence.
    IndexError
        For a single beta.
    """
    values = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    for name in ("lr", "betas"):
        if name in values:
            _check_tensors(name, values)
    for name in checked:
        CHECKS.get(name, _at_least_zero)(name, values[name])
    if values.get("fused"):
        if values.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if values.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    return values


def chosen(group: dict[str, Any], *names: str) -> dict[str, Any]:
    """These settings of a group, for a rule."""
    return {name: group[name] for name in names}


def _check_tensors(name: str, values: dict[str, Any]) -> None:
    """Rates may be tensors of one element; pairs of them become numbers."""
    if name == "lr":
        if isinstance(values["lr"], Tensor) and values["lr"].numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        return
    betas = values["betas"]
    if len(betas) < 2:
        raise IndexError(f"expected a pair of betas, got {betas}; write betas=(0.9, 0.999)")
    if len({isinstance(beta, Tensor) for beta in betas}) > 1:
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueError(f"Tensor betas[{i}] must be 1-element")
    values["betas"] = tuple([b.item() if isinstance(b, Tensor) else b for b in betas])


def _at_least_zero(name: str, value: Any) -> None:
    if not value >= 0.0:
        label = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
        raise ValueError(f"Invalid {label}: {value}")


def _below_one(name: str, betas: tuple[float, ...]) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def _at_most_one(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"Invalid {name} value: {value}")


def _around_one(name: str, etas: tuple[float, float]) -> None:
    if not 0.0 < etas[0] < 1.0 < etas[1]:
        raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "betas": _below_one,
    "rho": _at_most_one,
    "etas": _around_one,
}
