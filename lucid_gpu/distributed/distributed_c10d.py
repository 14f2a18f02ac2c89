"""The names of `distributed` in the module that PyTorch has them in, where packages import them."""

from __future__ import annotations

from typing import Any

from lucid_gpu import distributed
from lucid_gpu.compat.module_names import imported
from lucid_gpu.distributed import groups

_FROM = dict.fromkeys(distributed.__all__, distributed.__name__)

__all__ = list(distributed.__all__)


def _get_default_group() -> groups.ProcessGroup:
    """The group of all ranks; ValueError if there is none yet."""
    pg = groups.resolved(None)
    assert pg is not None
    return pg


def _get_global_rank(group: Any, rank: int) -> int:
    """`get_global_rank` under its first name."""
    return groups.get_global_rank(group, rank)


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is no member of a group."""
    return group is not None and group == groups.GroupMember.NON_GROUP_MEMBER


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
