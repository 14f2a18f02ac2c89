"""vmap: a function of one example becomes a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.func import batched_functions, batched_grad
from lucid_gpu.func.batching import BatchLevel, batch_levels, everywhere_batched
from lucid_gpu.func.entries import watching
from lucid_gpu.func.trees import Structure
from lucid_gpu.func.trees import flatten as tree_flatten
from lucid_gpu.func.trees import spread as _broadcast_to_and_flatten
from lucid_gpu.func.trees import unflatten as tree_unflatten
from lucid_gpu.ops.generator import get_rng_state, set_rng_state
from lucid_gpu.ops.shape import cat, movedim
from lucid_gpu.tape.levels import ENDED
from lucid_gpu.tensor import Tensor

__all__ = ["everywhere_batched", "vmap"]


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function that applies ``func`` to each slice of its arguments, all at once.

    Parameters
    ----------
    func : callable
        Of tensors and trees of them, returning tensors or a tree of them.
    in_dims : int, None or tree of them
        Which dimension of each argument counts the examples; None for what they share. One value
        stands for a whole argument, or for all.
    out_dims : int, None or tree of them
        Where the results have that dimension; None for what does not depend on the example, and
        for what is no tensor.
    randomness : {"error", "different", "same"}
        What random ops do: raise, draw for each example, or draw once for all.
    chunk_size : int, optional
        How many examples to take at once; all of them by default.

    Returns
    -------
    callable
        Keyword arguments are passed on unchanged.

    Raises
    ------
    RuntimeError
        For code that cannot be batched: data-dependent control flow (``if tensor``, ``.item()``),
        results of another shape for each example, in-place writes of batched values into tensors
        that all examples share.
    ValueError
        For a ``chunk_size`` that is not above 0; when called, for no arguments, and ``in_dims``
        that do not fit them.
    IndexError
        When called, for an output that does not have the dimension of ``out_dims``.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        size, dims, leaves, structure = _process_batched_inputs(in_dims, args, func)
        call = _Call(func, out_dims, randomness, structure, dims, kwargs)
        if chunk_size is None or chunk_size >= size:
            return _run(call, leaves, size)
        return _in_chunks(call, leaves, size, chunk_size)

    return mapped


class VmapLevel(BatchLevel):
    """A `BatchLevel` that also knows how functions and gradients go through it."""

    def function(self, cls: Any, args: Any) -> Any:
        return batched_functions.call(self, cls, args)

    def grad(self, *call: Any) -> list[Any]:
        return batched_grad.grad(self, *call)


class _Call(NamedTuple):
    """What a call of a function is besides the leaves of its arguments."""

    func: Callable[..., Any]
    out_dims: Any
    randomness: str
    structure: Structure
    dims: Sequence[Any]
    kwargs: dict[str, Any]


def _run(call: _Call, leaves: Sequence[Any], size: int) -> Any:
    with watching, VmapLevel(size, call.randomness) as level:
        args = _create_batched_inputs(call.dims, leaves, level.number, call.structure)
        results = call.func(*args, **call.kwargs)
        return _unwrap_batched(results, call.out_dims, level.number, size, call.func)


def _in_chunks(call: _Call, leaves: Sequence[Any], size: int, count: int) -> Any:
    """A part of the examples at a time."""
    rows: list[Sequence[Any]] = []
    sizes = [min(count, size - start) for start in range(0, size, count)]
    parts = [
        [leaf] * len(sizes) if dim is None else leaf.split(count, dim)
        for leaf, dim in zip(leaves, call.dims, strict=True)
    ]
    start = get_rng_state() if call.randomness == "same" else None
    for part, n in zip(zip(*parts, strict=True), sizes, strict=True):
        if start is not None:  # each part draws the same
            set_rng_state(start)
        results, structure = tree_flatten(_run(call, part, n))
        rows.append(results)
    places = _broadcast_to_and_flatten(call.out_dims, structure) or []
    joined = [
        column[0] if out_dim is None else cat(column, out_dim % column[0].ndim)
        for column, out_dim in zip(zip(*rows), places, strict=True)
    ]
    return tree_unflatten(joined, structure)


# --- PyTorch's names and arguments: packages whose containers have a batch of their own, such as
# --- tensordict, put functions of these names in place of ours, or call ours ----------------------


def _get_name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _process_batched_inputs(
    in_dims: Any, args: tuple[Any, ...], func: Any
) -> tuple[int, list[Any], list[Any], Structure]:
    """The batch's size; of each leaf of the arguments its dimension, from 0 or None, and itself."""
    name = _get_name(func)
    as_written = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{as_written}: expected `in_dims` to be int or a (potentially nested) tuple "
            f"matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, structure = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, structure)
    if dims is None:
        raise ValueError(
            f"{as_written}: in_dims is not compatible with the structure of `inputs`. in_dims "
            f"has structure {tree_flatten(in_dims)[1]} but inputs has structure {structure}."
        )
    dims = [_checked_dim(as_written, leaf, dim) for leaf, dim in zip(leaves, dims, strict=True)]
    return _size(as_written, leaves, dims), dims, leaves, structure


def _checked_dim(as_written: str, leaf: Any, dim: Any) -> int | None:
    """A dimension from 0."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{as_written}: Got in_dim={dim} for an input but in_dim must be either an "
            "integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{as_written}: Got in_dim={dim} for an input but the input is of type "
            f"{type(leaf)}. We cannot vmap over non-Tensor arguments, please use None as the "
            "respective in_dim"
        )
    if not -leaf.ndim <= dim < leaf.ndim:
        raise ValueError(
            f"{as_written}: Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {leaf.ndim} so expected in_dim to satisfy -{leaf.ndim} <= in_dim < "
            f"{leaf.ndim}."
        )
    return dim % leaf.ndim


def _size(as_written: str, leaves: list[Any], dims: list[Any]) -> int:
    sizes = [leaf.shape[d] for leaf, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"{as_written}: at least one of the inputs must be mapped over: Expected at least "
            "one Tensor to vmap over"
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _create_batched_inputs(
    flat_in_dims: Sequence[Any], flat_args: Sequence[Any], vmap_level: int, args_spec: Structure
) -> Any:
    batched = [
        leaf if dim is None else _add_batch_dim(leaf, dim, vmap_level)
        for leaf, dim in zip(flat_args, flat_in_dims, strict=True)
    ]
    return tree_unflatten(batched, args_spec)


def _unwrap_batched(
    batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Any
) -> Any:
    """Results with their batch where ``out_dims`` says."""
    name = _get_name(func)
    results, structure = tree_flatten(batched_outputs)
    if structure.kind is None and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    places = _broadcast_to_and_flatten(out_dims, structure)
    if places is None or not all(d is None or isinstance(d, int) for d in places):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible "
            f"with the structure of `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} "
            f"but outputs has structure {structure}."
        )
    outputs = [
        _maybe_remove_batch_dim(name, result, vmap_level, batch_size, place)
        for result, place in zip(results, places, strict=True)
    ]
    return tree_unflatten(outputs, structure)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """A result with its batch where ``out_dim`` says; None asserts that it has none.

    Then it may be anything, and is passed on.
    """
    if out_dim is not None:
        if not isinstance(batched_output, Tensor):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                f"{type(batched_output)}. Did you mean to set out_dims= to None for output?"
            )
        return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
    if isinstance(batched_output, Tensor) and _level(vmap_level).holds(batched_output):
        raise ValueError(
            f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
        )
    return batched_output


def _level(number: int) -> BatchLevel:
    """The call of `vmap` with this number."""
    found = [level for level in batch_levels() if level.number == number]
    if not found:
        raise RuntimeError(ENDED)
    return found[0]


def _add_batch_dim(tensor: Tensor, in_dim: int, vmap_level: int) -> Tensor:
    """A batched tensor."""
    return _level(vmap_level).wrap(tensor if in_dim == 0 else movedim(tensor, in_dim, 0))


def _remove_batch_dim(tensor: Tensor, vmap_level: int, batch_size: int, out_dim: int) -> Tensor:
    """The value of a batched tensor, with its batch at ``out_dim``; expanded if it has none."""
    rank = tensor.ndim + 1
    if not -rank <= out_dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{out_dim})"
        )
    value = _level(vmap_level).full(tensor)
    return value if out_dim % rank == 0 else movedim(value, 0, out_dim)
