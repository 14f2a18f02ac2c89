"""Calling a function again for what its gradient needs: the work behind `checkpoint`.

Saved-tensor hooks do it. In forward each saved tensor is replaced by a `Placeholder`, which holds
nothing. The first one that a backward pass asks for has the function called again; its saved
tensors come in the same order, and those whose placeholders are still wanted are kept until the
pass asks for them.
"""

from __future__ import annotations

import contextlib
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu.amp import autocast_mode
from lucid_gpu.amp.state import state as autocast
from lucid_gpu.autograd.saved_hooks import saved_tensors_hooks
from lucid_gpu.core.saved import Saved
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops import generator
from lucid_gpu.ops.packing import Packed
from lucid_gpu.ops.record import save, unpack
from lucid_gpu.tape.costly import recomputing
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled, state, surrounded
from lucid_gpu.tensor import Tensor

Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]

TIP = (
    "Tip: To see which lines saved them, pass `debug=True` to checkpoint(...) or run under "
    "`with set_checkpoint_debug_enabled(True):`."
)


class CheckpointError(RuntimeError):
    """The function did not do the same when it was called again."""


class _Stop(BaseException):
    """All that is wanted is there; no ``except Exception`` of the user's stops this."""


class Placeholder:
    """Stands in the graph for a tensor that was saved under a checkpoint."""

    __slots__ = ("__weakref__", "index")

    def __init__(self, index: int) -> None:
        self.index = index


class Saves:
    """What one call of the function saved: what each looked like, and from which lines."""

    def __init__(self, debug: bool) -> None:
        self.looks: list[tuple[Any, ...]] = []
        self.lines: list[str] | None = [] if debug else None

    def note(self, tensor: Tensor) -> int:
        """Add one; gives its number."""
        self.looks.append((tuple(tensor.shape), tensor.dtype, tensor.device))
        if self.lines is not None:
            self.lines.append("".join(traceback.format_stack(limit=12)[:-4]))
        return len(self.looks) - 1

    def describe(self, index: int) -> str:
        """One of them, as the error shows it."""
        shape, d, where = self.looks[index]
        return f"{{'shape': {list(shape)}, 'dtype': {d}, 'device': {where}}}"

    def report(self) -> str:
        """All of them with their lines, in debug mode."""
        lines = self.lines or ()
        return "\n".join(f"{i}. {self.describe(i)}, saved at\n{at}" for i, at in enumerate(lines))


class Call:
    """One call of a function under a checkpoint, and what it takes to repeat it.

    It does not hold what its graph holds: the graph's nodes hold placeholders, and these the call.
    """

    reads_arrays = False  # a function takes what its hooks give

    def __init__(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        preserve_rng_state: bool,
        determinism_check: str,
        debug: bool,
        early_stop: bool,
    ) -> None:
        self.function = function
        self.kwargs = kwargs
        self.check_looks = determinism_check == "default"
        self.early_stop = early_stop
        self.around = around(preserve_rng_state)
        self.args: tuple[Any, ...] = ()
        self.again: Any = None
        self.placeholders: list[weakref.ref[Placeholder]] = []
        self.saves = Saves(debug)
        self.complete = False  # has the first call returned
        self.recomputed: weakref.WeakKeyDictionary[Any, dict[int, Any]] = (
            weakref.WeakKeyDictionary()
        )

    def name(self) -> str:
        """How the error of an argument that was written in place calls it."""
        return "checkpoint"

    # --- forward ------------------------------------------------------------------------------

    def first_time(self, args: tuple[Any, ...], context_fn: Callable[[], Contexts]) -> Any:
        """Call the function, keeping its arguments only."""
        kwargs = self.kwargs
        if not is_grad_enabled():
            return self.function(*args, **kwargs)
        now, self.again = context_fn()
        # Saved as an op saves its operands: a checkpoint around this one computes them again too.
        self.args = tuple([_kept(a) for a in args])
        self.kwargs = {name: _kept(a) for name, a in kwargs.items()}
        with saved_tensors_hooks(self._put_away, self._fetch), now:
            results = self.function(*args, **kwargs)
        self.complete = True
        realize_results(results, [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)])
        return results

    def _put_away(self, tensor: Tensor) -> Placeholder:
        placeholder = Placeholder(self.saves.note(tensor))
        self.placeholders.append(weakref.ref(placeholder))
        return placeholder

    # --- backward -----------------------------------------------------------------------------

    def _fetch(self, placeholder: Placeholder) -> Tensor:
        task = state.task
        if task is None:  # somebody looks at a saved tensor, outside of any pass
            entry = self._recompute()[placeholder.index]
        else:
            recomputed = self.recomputed.get(task)
            if recomputed is None:
                recomputed = self.recomputed[task] = self._recompute()
            entry = recomputed.pop(placeholder.index, None)
        if entry is None:
            raise CheckpointError(
                "checkpoint: Unpack is being triggered for a tensor that was already unpacked "
                "once. If you are calling ctx.saved_tensors in backward, make sure to do so only "
                "once."
            )
        result: Any = unpack((entry,), self)[0]
        return result

    def _recompute(self) -> dict[int, Any]:
        """Call the function again; the tensors it saved whose placeholders are still wanted."""
        recomputed: dict[int, Any] = {}
        saves = Saves(self.saves.lines is not None)
        wanted = len(self.placeholders)
        args = [_taken(a, self) for a in self.args]
        kwargs = {name: _taken(a, self) for name, a in self.kwargs.items()}

        def keep(tensor: Tensor) -> Tensor:
            value = tensor.detach() if tensor.requires_grad else tensor
            index = saves.note(tensor)
            if index < wanted and self.placeholders[index]() is not None:
                (recomputed[index],) = save((value,), seen=False)
            if self.early_stop and index + 1 == wanted:
                raise _Stop
            if index >= wanted and self.complete:
                raise self._error(
                    "trying to save more tensors during recomputation than during the original "
                    "forward pass.",
                    saves,
                )
            return value

        try:
            with (
                replayed(self.around),
                self.again,
                enable_grad(),
                recomputing(),
                saved_tensors_hooks(keep, _same),
            ):
                self.function(*args, **kwargs)
        except _Stop as stop:
            traceback.clear_frames(stop.__traceback__)  # they hold what has been computed
        if self.complete:
            self._compare(saves, recomputed)
        return recomputed

    def _compare(self, saves: Saves, recomputed: dict[int, Any]) -> None:
        first, again = self.saves.looks, saves.looks
        if len(first) != len(again):
            raise self._error(
                "A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(first)}\nNumber of "
                f"tensors saved during recomputation: {len(again)}.",
                saves,
            )
        different = [i for i in recomputed if self.check_looks and first[i] != again[i]]
        if different:
            shown = "".join(
                f"tensor at position {i}:\nsaved metadata: {self.saves.describe(i)}\n"
                f"recomputed metadata: {saves.describe(i)}\n"
                for i in different
            )
            raise self._error(
                "Recomputed values for the following tensors have different metadata than during "
                f"the forward pass.\n{shown}",
                saves,
            )

    def _error(self, what: str, saves: Saves) -> CheckpointError:
        if self.saves.lines is None:
            return CheckpointError(f"checkpoint: {what}\n{TIP}")
        return CheckpointError(
            f"checkpoint: {what}\n\nSaved in the original forward:\n{self.saves.report()}\n\n"
            f"Saved during recomputation:\n{saves.report()}"
        )


def _kept(argument: Any) -> Any:
    return save((argument,))[0] if isinstance(argument, Tensor) else argument


def _taken(argument: Any, reader: Any) -> Any:
    return unpack((argument,), reader)[0] if type(argument) in (Saved, Packed) else argument


def _same(value: Any) -> Any:
    return value


class Around(NamedTuple):
    """What surrounds a call and decides what it computes."""

    random_state: Tensor | None
    casting: dict[str, tuple[dtype, bool]]
    surroundings: tuple[Any, ...]


def around(preserve_rng_state: bool) -> Around:
    """The random numbers to come, if they are to be the same again, autocast, and surroundings."""
    casting = {kind: (autocast.dtype[kind], on) for kind, on in autocast.enabled.items()}
    random_state = generator.get_rng_state() if preserve_rng_state else None
    return Around(random_state, casting, state.surroundings)


@contextlib.contextmanager
def replayed(then: Around) -> Iterator[None]:
    """As it was around a call of the past, and afterwards go on as today."""
    with contextlib.ExitStack() as blocks:
        blocks.enter_context(surrounded(then.surroundings))
        for kind, (d, on) in then.casting.items():
            if (d, on) != (autocast.dtype[kind], autocast.enabled[kind]):
                blocks.enter_context(autocast_mode.autocast(kind, d, on))
        if then.random_state is not None:
            blocks.callback(generator.set_rng_state, generator.get_rng_state())
            generator.set_rng_state(then.random_state)
        yield


def realize_results(results: Any, arguments: Sequence[Tensor]) -> None:
    """Compute pending results that read more than the arguments: what is between can go."""
    there = {id(cell.array) for tensor in arguments for cell in tensor._expr.leaves}
    for tensor in _tensors_in(results):
        if any(cell.array is not None and id(cell.array) not in there for cell in _cells(tensor)):
            tensor._cell()


def _cells(tensor: Tensor) -> Sequence[Any]:
    return () if tensor._expr.program.is_load else tensor._expr.leaves


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors_in(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors_in(part)
