"""Optimizers' steps in a graph: each replay makes them of what their groups hold then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.devices.capturing import Recorder, recording
from lucid_gpu.ops.captured import Watcher
from lucid_gpu.optim.hooks import register_optimizer_step_pre_hook
from lucid_gpu.optim.optimizer import Group, Member, Optimizer, update_by
from lucid_gpu.tape.modes import set_grad_enabled
from lucid_gpu.tensor import from_array, store_written

__all__ = ["following"]


def following(recorder: Recorder) -> Callable[[], None]:
    """Let a recorder have the steps of its thread; what is returned ends that."""

    def keep(optimizer: Any, *_: Any) -> None:
        if recording() is recorder:
            recorder.keep(optimizer.__dict__)

    def update(optimizer: Optimizer, group: Group, members: list[Member]) -> bool:
        if recording() is not recorder:
            return False
        _record(recorder, optimizer, group, members)
        return True

    handle = register_optimizer_step_pre_hook(keep)
    update_by(update)

    def end() -> None:
        handle.remove()
        update_by(None)

    return end


def _record(recorder: Recorder, optimizer: Optimizer, group: Group, members: list[Member]) -> None:
    """Make an update a call of a graph."""
    name = type(optimizer).__name__
    if group.get("capturable") is False and not recorder.capturable:
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {name} but "
            "param_groups' capturable is False."
        )
    if optimizer._listed or optimizer.defaults.get("differentiable"):
        recorder.refuse(f"{name}.step()", "its update is recorded, or its gradients list rows")
    store_written()
    Watcher(recorder).settle(*[value for _, _, state in members for value in state.values()])
    before = [(state, dict(state)) for _, _, state in members]

    def go_back() -> None:
        for own, values in before:
            own.clear()
            own.update(values)

    recorder.undo.append(go_back)
    # values that read a parameter take what it is now with them by recorded copies
    memory = [p._writable(f"{name}.step") for p, _, _ in members]
    gradients = [from_array(g.array, g.dtype, g.device) for _, g, _ in members]
    unless = getattr(optimizer, "_unless", None)
    skips = [] if unless is None else unless.flags
    if unless is not None:
        unless.read = True

    def update(*arrays: Any) -> None:
        if any(flag.item() for flag in skips):
            return
        for (p, *_), array in zip(members, memory, strict=True):
            if p.array is not array:
                raise RuntimeError(
                    f"{name}: a parameter of shape {list(p.shape)} has other memory than when "
                    "its graph was captured; write into it, p.copy_(values), instead"
                )
        with set_grad_enabled(False):
            again = zip(members, gradients, strict=True)
            optimizer._update_or_restore(group, [(m[0], gradient, m[2]) for m, gradient in again])
        store_written()

    recorder.call_again(f"{name}.step", update, [*memory, *[g.array for g in gradients], *skips])
