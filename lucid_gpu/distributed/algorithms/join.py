"""Training on uneven inputs: ranks whose inputs have ended take part in the others' collectives."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

from lucid_gpu.distributed import collectives, groups
from lucid_gpu.distributed.work import Work
from lucid_gpu.ops.creation import ones, zeros

__all__ = ["Join", "JoinHook", "Joinable"]

_MANY = 1000  # steps without inputs after which a rank warns


class JoinHook:
    """What a rank whose inputs have ended does."""

    def main_hook(self) -> None:
        """Take part in one more step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once the inputs of all ranks have ended.

        Parameters
        ----------
        is_last_joiner : bool
            Whether this rank is one of those that ended last.
        """


class Joinable(ABC):
    """What can take part in `Join`: each step calls `Join.notify_join_context` first."""

    _joining: Join | None = None  # the context it is in

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this does once inputs have ended; ``kwargs`` are those of `Join`."""
        ...

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where the tensors that count ranks are."""
        ...

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The ranks."""
        ...


class Join:
    """A context in which ranks may have different numbers of inputs.

    Parameters
    ----------
    joinables : list of Joinable
        In the order of their collectives in a step.
    enable : bool
    throw_on_early_termination : bool
        Raise on all ranks once one has no more inputs.
    **kwargs
        For `Joinable.join_hook`.
    """

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        first = joinables[0]
        for one in joinables[1:]:
            if one.join_process_group is not first.join_process_group:
                raise ValueError("Using join context manager with multiple process groups")
            if one.join_device != first.join_device:
                raise ValueError("Using join context manager with multiple devices")
        self._joinables, self._enabled = joinables, enable
        self._throws = throw_on_early_termination
        self._hooks = [one.join_hook(**kwargs) for one in joinables]

    def __enter__(self) -> Join:
        for one in self._joinables if self._enabled else ():
            one._joining = self
        return self

    def _sum(self, here: int) -> int:
        first = self._joinables[0]
        count = (ones if here else zeros)(1, device=first.join_device)
        collectives.all_reduce(count, group=first.join_process_group)
        return int(count.item())

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for one in self._joinables:
            one._joining = None
        if not self._enabled or kind is not None:
            return
        last, steps = True, 0
        while self._sum(0):
            if self._throws:
                self._sum(1)
                rank = groups.get_rank(self._joinables[0].join_process_group)
                raise RuntimeError(f"Rank {rank} exhausted all inputs.")
            last, steps = False, steps + 1
            if steps == _MANY:
                rank = groups.get_rank(self._joinables[0].join_process_group)
                warnings.warn(
                    f"Detected uneven input skew of greater than {_MANY}. This means that rank "
                    f"{rank} has at least {_MANY} "
                    "fewer inputs than other currently-active ranks. This level of skew could lead "
                    "to performance degradation during training.",
                    stacklevel=2,
                )
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say that this rank has a further input; each step begins with it.

        Returns
        -------
        Work or None
            Of counting the ranks that have; None outside `Join`, and for all but its first member.

        Raises
        ------
        RuntimeError
            If a rank has none, and the context throws.
        """
        context = joinable._joining
        if context is None or context._joinables[0] is not joinable:
            return None
        count = ones(1, device=joinable.join_device)
        group = joinable.join_process_group
        work = collectives.all_reduce(count, group=group, async_op=True)
        if context._throws and groups.get_world_size(group) != _finished(work):
            context._sum(0)
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
        return work


def _finished(work: Work | None) -> int:
    assert work is not None
    work.wait()
    return int(work.result()[0].item())
