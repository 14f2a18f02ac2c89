"""`torch.distributed.nn.functional`: collectives that gradients go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.distributed import collectives
from lucid_gpu.distributed.groups import get_rank, get_world_size
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.ops.creation import empty_like
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = [
    *("all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather"),
    *("reduce", "reduce_scatter", "scatter"),
]


def _recorded(
    name: str, run: Callable[..., Any], back: Callable[..., Any], *tensors: Tensor
) -> Any:
    """A collective, ``run(*tensors)``, and the one of its gradients, ``back(*gradients)``."""
    made = run(*[t.detach().contiguous() for t in tensors])
    arrays = tuple([t.array for t in made]) if isinstance(made, tuple) else made.array

    def vjp(node: Any, *gradients: Tensor) -> list[Tensor]:
        found = back(*gradients)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    return record(name, arrays, list(tensors), vjp)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Return rank `src`'s tensor, shape as `tensor`; the sum of all gradients goes to that rank."""

    def run(x: Tensor) -> Tensor:
        made = x.clone()
        collectives.broadcast(made, src, group)
        return made

    return _recorded(
        "_BroadcastBackward", run, lambda g: _only_on(src, reduce(g, src, group=group)), tensor
    )


def _only_on(rank: int, tensor: Tensor) -> Tensor:
    return tensor if get_rank() == rank else tensor * 0


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Return the tensors of all ranks combined by `op`, on rank `dst`; its gradient goes to all."""

    def run(x: Tensor) -> Tensor:
        made = x.clone()
        collectives.reduce(made, dst, op, group)
        return made

    return _recorded("_ReduceBackward", run, lambda g: broadcast(g, dst, group), tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Return the tensors of all ranks, on rank `dst`, else zeros; each gradient goes to its own."""

    def run(x: Tensor) -> tuple[Tensor, ...]:
        parts = [x * 0 for _ in range(get_world_size(group))]
        collectives.gather(x, parts if get_rank() == dst else None, dst, group)
        return tuple(parts)

    return _recorded("_GatherBackward", run, lambda *gs: scatter(gs, dst, group), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Return this rank's one of the `tensors` of rank `src`, to which its gradient goes back."""

    def run(*parts: Tensor) -> Tensor:
        made = empty_like(parts[0])
        collectives.scatter(made, list(parts) if get_rank() == src else None, src, group)
        return made

    return _recorded("_ScatterBackward", run, lambda g: gather(g, src, group), *tensors)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """Return this rank's tensors of all ranks' lists combined by `op`, which `output` gets too."""

    def run(*parts: Tensor) -> Tensor:
        collectives.reduce_scatter(output.detach(), list(parts), op, group)
        return output.detach().clone()

    return _recorded("_Reduce_ScatterBackward", run, lambda g: all_gather(g, group), *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Return a tensor from each rank, shapes as in the first list, for one of the second to it."""

    def run(*sent: Tensor) -> tuple[Tensor, ...]:
        received = [empty_like(t) for t in output_tensor_list]
        collectives.all_to_all(received, list(sent), group)
        return tuple(received)

    def back(*gradients: Tensor) -> tuple[Tensor, ...]:
        return all_to_all(input_tensor_list, gradients, group)

    return _recorded("_AlltoAllBackward", run, back, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Return rows from each rank, shape as `output`, for rows of `input` to each."""

    def run(sent: Tensor) -> Tensor:
        made = empty_like(output)
        collectives.all_to_all_single(made, sent, output_split_sizes, input_split_sizes, group)
        return made

    def back(gradient: Tensor) -> Tensor:
        return all_to_all_single(input, gradient, input_split_sizes, output_split_sizes, group)

    return _recorded("_AlltoAllSingleBackward", run, back, input)


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """Return the rows of all ranks, shape as `output_tensor`, which gets them too."""

    def run(x: Tensor) -> Tensor:
        collectives.all_gather_into_tensor(output_tensor.detach(), x, group)
        return output_tensor.detach().clone()

    def back(gradient: Tensor) -> Tensor:
        made = empty_like(input_tensor)
        collectives.reduce_scatter_tensor(made, gradient.contiguous(), ReduceOp.SUM, group)
        return made

    return _recorded("_AllGatherBaseBackward", run, back, input_tensor)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Combine a tensor of all ranks; its gradients are combined by the same op, as in PyTorch.

    Parameters
    ----------
    tensor : Tensor
        Of one shape and dtype on all ranks; it is not written.
    op : ReduceOp
    group : ProcessGroup, optional
        The default group by default.

    Returns
    -------
    Tensor
        The same on every rank.
    """
    combined = tensor.detach().clone()
    collectives.all_reduce(combined, op, group)

    def vjp(node: Any, gradient: Tensor) -> list[Tensor]:
        return [all_reduce(gradient, op, group)]

    result: Tensor = record("_AllReduceBackward", combined.array, [tensor], vjp)
    return result


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks; the gradient of each, summed over the ranks, goes to its rank.

    Parameters
    ----------
    tensor : Tensor
        Of one shape and dtype on all ranks.
    group : ProcessGroup, optional
        The default group by default.

    Returns
    -------
    tuple of Tensor
        One for each rank.
    """
    parts = [empty_like(tensor) for _ in range(get_world_size(group))]
    collectives.all_gather(parts, tensor.detach().contiguous(), group)

    def vjp(node: Any, *gradients: Tensor) -> list[Tensor]:
        return [all_reduce(stack(gradients), ReduceOp.SUM, group)[get_rank(group)]]

    arrays = tuple([part.array for part in parts])
    result: tuple[Tensor, ...] = record("_AllGatherBackward", arrays, [tensor], vjp)
    return result
