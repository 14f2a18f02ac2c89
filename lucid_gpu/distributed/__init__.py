"""Several processes that train together, under `torch.distributed`'s names.

One process needs no library; several are connected by MPI through mpi4py, and their GPUs by NCCL
through CuPy. Names are imported when they are first used: importing this module imports no library
and opens no connection.
"""

from __future__ import annotations

import os as _os
from typing import Any

from lucid_gpu.compat.module_names import imported

_NAMES = {
    "errors": "DistBackendError DistError DistNetworkError DistStoreError QueueEmptyError",
    "groups": (
        "Backend GroupMember ProcessGroup default_pg_timeout destroy_process_group get_backend "
        "get_backend_config get_default_backend_for_device get_global_rank get_group_rank "
        "get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size group "
        "init_process_group is_backend_available is_gloo_available is_initialized is_mpi_available "
        "is_nccl_available is_torchelastic_launched is_ucc_available is_xccl_available new_group "
        "new_subgroups new_subgroups_by_enumeration"
    ),
    "collectives": (
        "P2POp _all_gather_base _reduce_scatter_base all_gather all_gather_into_tensor "
        "all_gather_single all_reduce "
        "all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast "
        "gather irecv isend monitored_barrier recv reduce reduce_scatter reduce_scatter_single "
        "reduce_scatter_tensor scatter send"
    ),
    "objects": (
        "all_gather_object broadcast_object_list gather_object recv_object_list "
        "scatter_object_list send_object_list"
    ),
    "grad_bucket": "GradBucket",
    "device_mesh": "DeviceMesh init_device_mesh",
    "reductions": "ReduceOp reduce_op supports_complex",
    "store": "FileStore HashStore PrefixStore Store TCPStore",
    "work": "Work",
}
_FROM = {name: f"{__name__}.{file}" for file, names in _NAMES.items() for name in names.split()}
__path__ = [
    *__path__,
    _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "distributed"),
]
_MODULES = (
    "_functional_collectives",
    "algorithms",
    "checkpoint",
    "constants",
    "device_mesh",
    "distributed_c10d",
    "elastic",
    "fsdp",
    "launch",
    "nn",
    "optim",
    "run",
    "tensor",
)

__all__ = ["is_available", *sorted(name for name in _FROM if name[0] != "_")]


def is_available() -> bool:
    """Whether processes can train together: True."""
    return True


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FROM})
