"""GPUs: which there are, their streams, their memory. Harmless to import without one.

Names, arguments and sentences are PyTorch's. Nothing here imports CuPy before it is known to be
there: `is_available` answers False where CuPy, the driver or a GPU is missing, figures are 0, and
what cannot be done raises a RuntimeError that says which of them is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lucid_gpu.compat.module_names import imported as _imported
from lucid_gpu.cuda import nvtx
from lucid_gpu.cuda.gpus import (
    DeviceProperties,
    _lazy_call,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from lucid_gpu.cuda.gpus import init as _lazy_init
from lucid_gpu.cuda.kernel import UserKernel, kernel
from lucid_gpu.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from lucid_gpu.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from lucid_gpu.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from lucid_gpu.devices.cuda_errors import AcceleratorError, OutOfMemoryError

if TYPE_CHECKING:
    from lucid_gpu.cuda.graphs import (
        CUDAGraph,
        graph,
        graph_pool_handle,
        is_current_stream_capturing,
        make_graphed_callables,
    )
    from lucid_gpu.cuda.replayed import captured

_LATE = {
    name: f"lucid_gpu.cuda.{module}"
    for module, names in {
        "replayed": "captured",
        "graphs": "CUDAGraph graph graph_pool_handle is_current_stream_capturing "
        "make_graphed_callables",
        "nvml": "clock_rate device_memory_used list_gpu_processes memory_usage power_draw "
        "temperature utilization",
        "runtime": "CUDAPluggableAllocator CudaError MemPool change_current_allocator check_error "
        "cudaStatus cudart current_blas_handle default_generators get_allocator_backend "
        "caching_allocator_alloc caching_allocator_delete get_stream_from_external "
        "get_sync_debug_mode ipc_collect memory_snapshot set_sync_debug_mode use_mem_pool",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """``cuda.FloatTensor`` and other types, of storages too, `amp`, graphs, ``_initialized``."""
    if name == "_initialized":
        return is_initialized()
    from lucid_gpu.ops import storage_types, tensor_types

    for types in (tensor_types.TYPES, storage_types.TYPES):
        if ("cuda", name) in types:
            return types["cuda", name]
    return _imported(globals(), name, _LATE, modules=("amp", "comm", "graphs", "profiler"))


def __dir__() -> list[str]:
    """Also what is imported when it is first asked for."""
    return sorted({*globals(), *_LATE, "amp", "comm", "graphs", "profiler"})
