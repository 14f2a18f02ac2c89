"""Checkpoints that keep the results of some ops: `create_selective_checkpoint_contexts`.

A policy is asked of products of matrices, convolutions, attention (`lucid_gpu.tape.costly`), of
elementwise ops that are recorded, and of the ops that users define with a gradient by
`torch.library`. The rest is computed again.
"""

from __future__ import annotations

import contextlib
import enum
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu import ops
from lucid_gpu.devices.copies import duplicate
from lucid_gpu.tape import costly
from lucid_gpu.tape.costly import CostlyCall
from lucid_gpu.tensor import Tensor, from_array

__all__ = [
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
]

MISMATCH = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend "
    "on global state that changed between forward and backward."
)


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result: the two to save keep it, the others compute it again."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


SAVE = (True, CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class SelectiveCheckpointContext:
    """What a policy is told beside the op.

    Attributes
    ----------
    is_recompute : bool
        Always False: a policy is asked in forward.
    op_output : Tensor or tuple of Tensor
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Again:
    """In the place of a result that is to be computed again."""


class _Consumed:
    """In the place of a result that has been taken."""


Kept = dict[str, dict[int, Any]]  # by op and the number of its call


class _Contexts:
    """The two contexts of one call of `checkpoint`, and what they share."""

    def __init__(self, policy: Callable[..., Any]) -> None:
        self.policy = policy
        self.kept: Kept = defaultdict(dict)

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        counts: dict[str, int] = defaultdict(int)

        def keep(call: CostlyCall, go_on: Callable[[], Any]) -> Any:
            result = go_on()
            number, counts[call.name] = counts[call.name], counts[call.name] + 1
            context = SelectiveCheckpointContext(
                is_recompute=False, op_output=_tensors(result, call)
            )
            arguments = (*_tensors(call.arrays, call), *call.settings)
            wanted = self.policy(context, _overload(call), *arguments) in SAVE
            # A copy, since the op's result may be written in place.
            self.kept[call.name][number] = _copied(result) if wanted else _Again
            return result

        with costly.watching(keep):
            yield

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        counts: dict[str, int] = defaultdict(int)

        def take(call: CostlyCall, go_on: Callable[[], Any]) -> Any:
            number, counts[call.name] = counts[call.name], counts[call.name] + 1
            results = self.kept.get(call.name, {})
            if number not in results:
                raise RuntimeError(
                    f"{_overload(call)} invocation index {number} encountered during "
                    f"backward but not found in storage. {MISMATCH}"
                )
            result = results[number]
            if result is _Again:
                return go_on()
            if result is _Consumed:
                raise RuntimeError(
                    "Trying to backward an extra time. You are only allowed to backward once on "
                    "any region computed under selective activation checkpoint."
                )
            results[number] = _Consumed
            return result

        with costly.watching(take):
            yield


class _Reentered(contextlib.AbstractContextManager[None]):
    """A context that may be entered again, as recomputation does."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self.make = make
        self.entered: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self.entered.append(self.make())
        return self.entered[-1].__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self.entered.pop().__exit__(*error)


def _copied(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)([_copied(part) for part in result])
    if isinstance(result, Tensor):
        copied = result.detach().clone()
        copied._cell()  # computed, so that what it was computed from can go
        return copied
    return duplicate(result) if hasattr(result, "strides") else result


def _tensors(result: Any, call: CostlyCall) -> Any:
    """Arrays as a policy sees them."""
    if isinstance(result, (tuple, list)):
        return type(result)([_tensors(part, call) for part in result])
    return from_array(result, None, call.where) if hasattr(result, "strides") else result


def _overload(call: CostlyCall) -> Any:
    if call.op is not None:
        return call.op
    name, _, form = call.name.partition(".")
    return getattr(getattr(ops.aten, name), form or "default")


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]:
    """Contexts for `checkpoint` that keep the results of some ops.

    Parameters
    ----------
    policy_fn_or_list : callable or list
        Ops such as ``torch.ops.aten.mm.default`` whose results are kept; or a function
        ``policy(ctx, op, *args)`` that gives a `CheckpointPolicy`. It is asked of ``mm``, ``bmm``,
        ``addmm``, ``convolution``, ``_scaled_dot_product_flash_attention``, of elementwise ops that
        are recorded, and of ops of `torch.library` with a gradient; what is none of these is
        computed again.
    allow_cache_entry_mutation : bool
        Accepted for PyTorch's sake: what is kept is a copy, which nobody writes.

    Returns
    -------
    tuple of two context managers

    Raises
    ------
    ValueError
        For a list with something else than forms of ops.
    TypeError
        For what is neither a function nor a list.
    """
    if isinstance(policy_fn_or_list, list):
        packet = ops.aten.mm
        for one in policy_fn_or_list:
            is_users = getattr(one, "default", None) is one  # an op of torch.library has one form
            if not (is_users or isinstance(one, type(packet.default))):
                hint = (
                    "Please update the OpOverloadPacket to a specific OpOverload."
                    "For example, if you have `torch.ops.aten.mm`, change it to "
                    "`torch.ops.aten.mm.default`."
                )
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {one} of type "
                    f"{type(one)}. {hint if isinstance(one, type(packet)) else ''}"
                )
        listed = tuple(policy_fn_or_list)
        contexts = _Contexts(lambda ctx, op, *args: op in listed)
    elif callable(policy_fn_or_list):
        contexts = _Contexts(policy_fn_or_list)
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return _Reentered(contexts.forward), _Reentered(contexts.again)
