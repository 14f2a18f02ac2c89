"""Batched tensors: what a function under `vmap` sees of a tensor with one more dimension.

To the function it has the shape of one example. Its value has the batch in front; ops run on the
values, once for the whole batch, and graphs are recorded there. Elementwise ops are interpreted
here, the others by the rules beside them (`tape.rules`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from lucid_gpu.core.program import WRAPPED, Instruction, intern
from lucid_gpu.core.value import Expr, give
from lucid_gpu.dtypes import scalar_type
from lucid_gpu.fusion.optable import Op
from lucid_gpu.fusion.typing_rules import types_of
from lucid_gpu.ops.elementwise import cast
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import expand, movedim, replay, reshape
from lucid_gpu.ops.statistics import allclose
from lucid_gpu.ops.strides import as_strided
from lucid_gpu.tape.levels import BACKWARD_INSIDE, ENDED, MARKED_INSIDE, Level, Wrapper, open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tape.overrides import disabled
from lucid_gpu.tape.rules import Batch
from lucid_gpu.tensor import Tensor, apply


class NeedsArray(RuntimeError):
    """Somebody asked for the memory of a batched tensor."""


class Batched(Wrapper):
    """The value with the batch in front."""

    __slots__ = ("value",)

    def __init__(self, level: Level, value: Tensor) -> None:
        super().__init__(level)
        self.value = value


class BatchedTensor(Tensor):
    """A tensor that has the shape of one example and no memory of its own."""

    __torch_function__ = staticmethod(disabled)

    def _realize(self) -> NoReturn:
        value_below(self)  # or it has escaped
        raise NeedsArray(
            "vmap: something asked for the memory of a batched tensor: .numpy(), .cupy(), or an op "
            "that vmap does not know. Do it outside of vmap, or write it with tensor ops."
        )

    def _cell(self) -> NoReturn:
        self._realize()

    def _load(self) -> NoReturn:
        self._realize()

    def _own_memory(self) -> None:
        self._realize()

    def item(self) -> NoReturn:
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            "operations."
        )

    def __bool__(self) -> NoReturn:
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet; choose elementwise with lucid_gpu.where(condition, "
            "a, b) instead."
        )

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(BACKWARD_INSIDE)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        if requires_grad == self.requires_grad and not state.transforms:
            return self
        raise RuntimeError(MARKED_INSIDE)

    def stride(self, dim: int | None = None) -> Any:
        """Those of one example, in the memory of the batch."""
        strides = value_below(self).stride()[1:]
        return strides if dim is None else strides[normalize_dim(dim, self.ndim)]

    @property  # type: ignore[override]
    def data(self) -> NoReturn:
        """RuntimeError: what it shares with its tensor is the batch's."""
        raise RuntimeError(
            "accessing `data` under vmap transform is not allowed; write .detach() instead"
        )

    @data.setter
    def data(self, value: Any) -> NoReturn:
        raise RuntimeError(
            "mutating directly with `.data` under vmap transform is not allowed; write "
            "x.copy_(value) instead."
        )

    def _edge(self) -> tuple[Any, int]:
        return value_below(self)._edge()

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        return value_below(self).requires_grad

    @property
    def _version(self) -> int:
        return value_below(self)._version

    @property
    def is_leaf(self) -> bool:
        return value_below(self).is_leaf

    def __repr__(self) -> str:
        batch = _batch_of(self)
        depth = open_levels.index(batch.level) + 1
        inner = "\n".join("    " + line for line in repr(batch.value).splitlines())
        return f"BatchedTensor(lvl={depth}, bdim=0, value=\n{inner}\n)"


def _batch_of(tensor: Tensor) -> Batched:
    """What the innermost `vmap` knows of a tensor, whatever else lies on it."""
    wrapper = tensor._wrapper
    while wrapper is not None and not isinstance(wrapper, Batched):
        wrapper = wrapper.below
    if wrapper is None or wrapper.level not in open_levels:
        raise RuntimeError(ENDED)
    return wrapper


def value_below(tensor: Tensor) -> Tensor:
    """The value of a batched tensor."""
    return _batch_of(tensor).value


class BatchLevel(Batch):
    """One call of `vmap`.

    Attributes
    ----------
    alike : bool
        Whether its examples differ in their tangents alone, as `autograd.gradcheck` says.
    """

    alike = False

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__(size, randomness)
        self.thread = threading.get_ident()
        self.taken: list[tuple[Tensor, Expr, type]] = []  # see `take_in`

    # --- values -----------------------------------------------------------------------------------

    def wrap(self, value: Tensor) -> Tensor:
        """A batched tensor; ``value`` has the batch in front."""
        program, shape = value._expr.program, value._expr.shape[1:]
        one = Instruction("wrapped", (), program.dtype, shape, program.needs_grad)
        made = object.__new__(BatchedTensor)
        give(made, Expr(intern((one,), 0, program.device, WRAPPED), (), None, shape))
        made._wrapper = Batched(self, value)
        return made

    def full(self, tensor: Tensor) -> Tensor:
        """A value with the batch in front: expanded, without a copy, if there was none."""
        if self.holds(tensor):
            kept: Tensor = self.value(tensor)
            return kept
        return expand(tensor, (self.size, *tensor.shape))

    def own(self, tensor: Tensor, lies: bool = False) -> Tensor:
        """As `full`, but no two examples lie on one memory: each can be written.

        Where ``lies``, each lies as the one there was, gaps and all. Nobody sees the gaps of what
        another level holds: there they share their memory, and a write is refused.
        """
        if self.holds(tensor):
            return self.full(tensor)
        if not lies or tensor.is_contiguous():
            return self.full(tensor).clone()
        if tensor._wrapper is not None:
            return self.full(tensor)
        steps = tensor.stride()
        span = 1 + sum([(n - 1) * step for n, step in zip(tensor.shape, steps, strict=True)])
        memory = expand(as_strided(tensor, (span,), (1,)), (self.size, span)).clone()
        return as_strided(memory, (self.size, *tensor.shape), (span, *steps))

    def aligned(self, tensor: Any, rank: int) -> Any:
        """A value whose dimensions after the batch face those of tensors of a larger rank."""
        if not self.holds(tensor):
            return tensor
        value = self.value(tensor)
        missing = rank - tensor.ndim
        if not missing:
            return value
        return reshape(value, (self.size, *[1] * missing, *tensor.shape))

    # --- interpreting -----------------------------------------------------------------------------

    def release(self, tensor: Any) -> None:
        """Nothing to do: a batched tensor is of no use without its level."""

    def apply(self, op: Op, operands: Sequence[Any], to: Any = None, shape: Any = None) -> Tensor:
        if any(isinstance(o, Tensor) and o._is_sparse for o in operands):
            raise NotImplementedError(
                f"vmap: {op.name} of a batched and a sparse tensor; call .to_dense() first"
            )
        operands, kind = _in_one_type(op, operands)
        ranks = [o.ndim for o in operands if isinstance(o, Tensor)]
        rank = max(ranks) if shape is None else len(shape)
        whole = None if shape is None else (self.size, *shape)
        values = [self.aligned(o, rank) for o in operands]
        value = apply(op, *values, to=to, shape=whole)
        return self.wrap(value if kind is None else cast(value, kind))

    def record(self, *call: Any, **attributes: Any) -> NoReturn:
        raise NeedsArray("vmap: an op was recorded that vmap does not know")

    def view(self, *call: Any, **attributes: Any) -> NoReturn:
        raise NeedsArray("vmap: a view was taken that vmap does not know")

    def write(self, target: Tensor, value: Any, name: str) -> Tensor:
        self.take_in(target, value, name)
        if isinstance(value, Tensor):
            if tuple(value.shape) != tuple(target.shape):
                raise RuntimeError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape "
                    f"{list(value.shape)} in {name}"
                )
            value = self.own(value)
        self.value(target)._write(value, name)
        return target

    def take_in(self, target: Tensor, value: Any, name: str) -> None:
        if self.holds(target):
            return
        if not _only_tangents_vary(value, self):
            raise RuntimeError(
                f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor "
                "`other` in extra_args that has more elements than `self`. This happened due to "
                "`other` being vmapped over but `self` not being vmapped over in a vmap. Please "
                f"try to use out-of-place operators instead of {name}."
            )
        base = target if target._base is None else target._base
        others = base._memory().others(None)
        views = [t for t in others if t._base is base]
        whole = self.wrap(self.own(base.alias()))
        self.taken.append((base, base._expr, type(base)))
        _become(base, whole)
        for view in views:
            self.taken.append((view, view._expr, type(view)))
            _become(view, replay(whole, view._steps))

    def close(self) -> None:
        """Tensors that took a batch are as before; bases have the value that was written."""
        taken, self.taken = self.taken, []
        values = [(t, _without_tangents(self.value(t)), expr, cls) for t, expr, cls in taken]
        super().close()
        for tensor, _, expr, cls in values:
            tensor.__class__ = cls
            give(tensor, expr)
            del tensor._wrapper
        with no_grad():
            for tensor, value, _, _ in values:
                if tensor._base is None and self.size:
                    tensor._write(value[0], "copy_")

    def detach(self, tensor: Tensor) -> Tensor:
        return self.wrap(self.value(tensor).detach())

    def alias(self, tensor: Tensor) -> Tensor:
        return self.wrap(self.value(tensor).alias())

    def over(self, tensor: Tensor, function: Any) -> Tensor:
        """The batched tensor with ``function(value)`` for its value."""
        return self.wrap(function(self.value(tensor)))

    def parts(self, tensor: Tensor) -> list[Tensor]:
        """What a batched tensor consists of."""
        return [self.value(tensor)]


def _become(tensor: Tensor, batched: Tensor) -> None:
    """Make a batched tensor of an ordinary one."""
    tensor.__class__ = BatchedTensor
    give(tensor, batched._expr)
    tensor._wrapper = batched._wrapper


def _without_tangents(value: Tensor) -> Tensor:
    """The value that lies under tangents of all levels."""
    while value._wrapper is not None and not value._wrapper.level.batches:
        value = value._wrapper.level.primal(value)
    return value


def _only_tangents_vary(value: Any, level: BatchLevel) -> bool:
    """Whether the examples of a value with tangents differ in these only, as `jacfwd`'s do.

    Then memory that has no batch can take it. The values have a batch here because batches lie
    over tangents.
    """
    part = level.value(value)
    dual, axis = False, 1
    while part is not value and part._wrapper is not None:
        within = part._wrapper.level
        part = within.value(part) if within.batches else within.primal(part)
        axis += within.batches
        dual = dual or not within.batches
    if not dual:
        return False
    rows = movedim(part.detach(), axis - 1, 0)
    return not level.size or allclose(rows, rows[:1], 0.0, 0.0, equal_nan=True)


def _in_one_type(op: Op, operands: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """Operands in the types they have for one example: a batch of numbers is still numbers.

    Where these are two, beside 16 bits, all are in the wider one, and the second result is the type
    that the op's is to have.
    """
    tensors = [o for o in operands if isinstance(o, Tensor)]
    if len({o.dtype for o in tensors}) < 2 or op.rule in ("cast", "identity"):
        return operands, None
    described = [
        (o.dtype, o.ndim, False) if isinstance(o, Tensor) else (scalar_type(o), 0, True)
        for o in operands
    ]
    types, result = types_of(op, described)
    mixed = result.compute is not result and result.compute in types
    own = [result.compute if mixed and d is result else d for d in types]
    converted = [
        cast(o, d) if isinstance(o, Tensor) else o for o, d in zip(operands, own, strict=True)
    ]
    return converted, result if mixed else None


def batch_levels() -> list[BatchLevel]:
    """The calls of `vmap` that this thread is in, the outermost first."""
    own = threading.get_ident()
    return [lv for lv in open_levels if isinstance(lv, BatchLevel) and lv.thread == own]


def everywhere_batched(tensor: Tensor) -> Tensor:
    """The tensor with a batch at every level of `vmap` that is open and not asleep.

    To differentiate by: then each example has a gradient of its own.
    """
    return _batched_at(tensor, [level for level in batch_levels() if not level.asleep])


@contextmanager
def unbatched() -> Iterator[None]:
    """While a function runs that nothing batched is passed to, as outside of `vmap`."""
    awake = [level for level in batch_levels() if not level.asleep]
    for level in awake:
        level.asleep = True
    try:
        yield
    finally:
        for level in awake:
            level.asleep = False


def _batched_at(tensor: Tensor, levels: Sequence[BatchLevel]) -> Tensor:
    if not levels:
        return tensor
    *outer, level = levels
    wrapper = tensor._wrapper
    if wrapper is not None and wrapper.level.number > level.number:
        batched: Tensor = wrapper.level.over(tensor, lambda t: _batched_at(t, levels))
        return batched
    if level.holds(tensor):
        return level.over(tensor, lambda t: _batched_at(t, outer))
    return level.wrap(level.full(_batched_at(tensor, outer)))


def beneath(tensor: Tensor, level: BatchLevel) -> Tensor:
    """The value at ``level`` of a tensor that may be batched further in as well.

    That other batch stays; the one of ``level`` becomes the first dimension it sees.
    """
    wrapper = tensor._wrapper
    if wrapper is None or wrapper.level.number <= level.number:
        return level.full(tensor)
    inner = wrapper.level
    value: Tensor = inner.over(tensor, lambda t: movedim(beneath(t, level), 0, 1))
    return value


def raised(tensor: Tensor, level: BatchLevel) -> Tensor:
    """The reverse of `beneath`."""
    wrapper = tensor._wrapper
    if wrapper is None or wrapper.level.number <= level.number:
        return level.wrap(tensor)
    wrapped: Tensor = wrapper.level.over(tensor, lambda t: raised(movedim(t, 1, 0), level))
    return wrapped
