"""`torch._C._autograd`: what packages ask of the engine."""

from __future__ import annotations

from lucid_gpu.autograd import SavedTensor
from lucid_gpu.core.engine import keeps_graph as _get_current_graph_task_keep_graph
from lucid_gpu.tape.modes import state

__all__ = ["SavedTensor", "_get_current_graph_task_keep_graph", "_saved_tensors_hooks_is_enabled"]


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether saved-tensor hooks may be set now."""
    return state.no_hooks is None
