"""Which layers of a model are sharded apart: `auto_wrap_policy` of `FullyShardedDataParallel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.nn.modules.attention import MultiheadAttention
from lucid_gpu.nn.modules.container import ModuleDict, ModuleList
from lucid_gpu.nn.modules.module import Module

__all__ = [
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "chosen",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]

Policy = Callable[..., bool]


class ModuleWrapPolicy:
    """Modules of some classes.

    Parameters
    ----------
    module_classes : iterable of type
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._classes)

    def __repr__(self) -> str:
        return f"{super().__repr__()}({set(self._classes)})"


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Modules of which ``lambda_fn(module)`` says so."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: set[type[Module]],
) -> bool:
    """Modules of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Modules of at least ``min_num_params`` elements that are not sharded apart below them.

    Parameters
    ----------
    force_leaf_modules : set of type, optional
        Not looked into; attention by default.
    exclude_wrap_modules : set of type, optional
        Never sharded apart; lists and dictionaries of modules by default.
    """
    leaves = {MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    never = {ModuleList, ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(
        module, tuple(leaves if recurse else never)
    )


def chosen(module: Module, policy: Policy, left_out: set[int]) -> list[Module]:
    """The modules below one that a policy names, those further below first."""
    selected: list[Module] = []
    _select(module, policy, left_out, selected, root=True)
    return selected


def _select(
    module: Module, policy: Policy, left_out: set[int], selected: list[Module], root: bool = False
) -> int:
    """How many elements are sharded apart."""
    numel = sum(p.numel() for p in module.parameters())
    if not policy(module=module, recurse=True, nonwrapped_numel=numel):
        return 0
    apart = sum(
        _select(child, policy, left_out, selected)
        for child in module.children()
        if id(child) not in left_out
    )
    if root or not policy(module=module, recurse=False, nonwrapped_numel=numel - apart):
        return apart
    selected.append(module)
    return numel
