"""Checkpoints: what a function saves for backward is computed again instead of kept."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lucid_gpu.autograd.backward import backward
from lucid_gpu.autograd.function import Function
from lucid_gpu.tape.modes import enable_grad, state
from lucid_gpu.tensor import Tensor
from lucid_gpu.utils.recomputation import (
    Call,
    CheckpointError,
    Contexts,
    around,
    realize_results,
    replayed,
)
from lucid_gpu.utils.selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

EXPLICIT = (
    "the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling "
    "checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, "
    "but if you need to preserve the current default behavior, you can pass use_reentrant=True."
)


def detach_variable(inputs: Any) -> tuple[Any, ...]:
    """Tensors of a tuple without their history, which require grad where they did; and the rest.

    RuntimeError for anything but a tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        [t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs]
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if none of some inputs requires grad."""
    _check_validity(inputs, stacklevel=3)


def _check_validity(inputs: Iterable[Any], stacklevel: int) -> None:
    if not any(isinstance(t, Tensor) and t.requires_grad for t in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None",
            stacklevel=stacklevel,
        )


def noop_context_fn() -> Contexts:
    """Contexts that do nothing, for forward and for recomputation."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Settings:
    """What the context managers below say; None leaves it to the caller of `checkpoint`."""

    early_stop: bool | None = None
    debug: bool | None = None


@contextlib.contextmanager
def _set(name: str, value: Any) -> Iterator[None]:
    before = getattr(_Settings, name)
    setattr(_Settings, name, value)
    try:
        yield
    finally:
        setattr(_Settings, name, before)


def set_checkpoint_early_stop(enable: bool) -> contextlib.AbstractContextManager[None]:
    """Whether recomputation stops as soon as all that was saved is there again (the default).

    Matters while forward runs, whenever backward does.
    """
    return _set("early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> contextlib.AbstractContextManager[None]:
    """Override ``debug`` of `checkpoint`; None leaves it as it was passed."""
    return _set("debug", enabled)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function, and keep only its arguments for backward.

    Backward calls the function again to recompute the values that its gradient needs.

    Parameters
    ----------
    function : callable
        Must do the same when it is called again.
    *args, **kwargs
        Its arguments.
    use_reentrant : bool
        False is recommended: it takes part in `autograd.grad`, in second derivatives and in hooks,
        and sees tensors that the function closes over. True runs forward without recording, and
        goes backward in a pass of its own.
    context_fn : callable
        Gives two context managers: for the first call, and for the others.
    determinism_check : str
        ``"default"`` compares shape, dtype and device of what is computed again; ``"none"`` does
        not.
    debug : bool
        Errors show where in the function tensors were saved, each time.
    early_stop : bool
        Stop recomputing once all that was saved is there again.
    preserve_rng_state : bool
        Draw the same random numbers again.

    Returns
    -------
    object
        What the function returned.

    Raises
    ------
    CheckpointError
        In backward, where the function saved other tensors than before.
    ValueError
        For unknown arguments, and those of the other kind of checkpoint.
    """
    if use_reentrant is None:
        warnings.warn(f"lucid_gpu.utils.checkpoint: {EXPLICIT}", stacklevel=2)
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(
            "determinism_check should be one of ['default', 'none'], but got " + determinism_check
        )
    if _Settings.debug is not None:
        debug = _Settings.debug
    if _Settings.early_stop is not None:
        early_stop = _Settings.early_stop
    call = Call(function, kwargs, preserve_rng_state, determinism_check, debug, early_stop)
    return call.first_time(args, context_fn)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    *,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Run functions one after the other, each of so many segments but the last as a `checkpoint`.

    Parameters
    ----------
    functions : Sequential or sequence of callable
    segments : int
    input : object
        What the first is given; each gives the next one's.
    use_reentrant, preserve_rng_state : bool
        See `checkpoint`.

    Raises
    ------
    ValueError
        For unknown keyword arguments.
    """
    if use_reentrant is None:
        warnings.warn(f"lucid_gpu.utils.checkpoint.checkpoint_sequential: {EXPLICIT}", stacklevel=2)
        use_reentrant = True
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions)
    size = len(steps) // segments
    for i in range(segments - 1):
        input = checkpoint(
            _in_order(steps[i * size : (i + 1) * size]),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve_rng_state,
        )
    return _in_order(steps[(segments - 1) * size :])(input)


def _in_order(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run


# --- re-entrant -----------------------------------------------------------------------------------


class CheckpointFunction(Function):
    """A function that runs unrecorded, and backward through a second call of it."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Call the function; its arguments are all that is kept."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        _check_validity(tensors, stacklevel=5)
        ctx.function = function
        ctx.around = around(preserve)
        ctx.others = [Tensor if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*tensors)
        results = function(*args)
        realize_results(results, tensors)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Call it again, recorded, and go backward through that.

        Raises
        ------
        RuntimeError
            Inside `autograd.grad` or a `backward` with ``inputs``, and where no output requires it.
        """
        if state.task is not None and not state.task.everywhere:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
        args = _detached(ctx)
        with replayed(ctx.around), enable_grad():
            results = ctx.function(*args)
        pairs = zip(results if isinstance(results, tuple) else (results,), gradients, strict=True)
        wanted = [(r, g) for r, g in pairs if isinstance(r, Tensor) and r.requires_grad]
        if not wanted:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        backward([r for r, _ in wanted], [g for _, g in wanted])
        return (None, None, *[a.grad if isinstance(a, Tensor) else None for a in args])


def _detached(ctx: Any) -> list[Any]:
    """The arguments of forward, its tensors as leaves."""
    tensors = iter(ctx.saved_tensors)
    arguments = []
    for other, needs in zip(ctx.others, ctx.needs_input_grad[2:], strict=True):
        leaf = next(tensors).detach()._mark(needs) if other is Tensor else other
        arguments.append(leaf)
    return arguments


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs of tensors among the arguments, and the state of each one's random numbers."""
    from lucid_gpu.cuda import get_rng_state

    tensors = [a for a in args if isinstance(a, Tensor) and a.is_cuda]
    numbers = list(dict.fromkeys([t.get_device() for t in tensors]))
    return numbers, [get_rng_state(n) for n in numbers]


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Set the states that `get_device_states` returned."""
    from lucid_gpu.cuda import set_rng_state

    for number, state_of_it in zip(devices, states):
        set_rng_state(state_of_it, number)
