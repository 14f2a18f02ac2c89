"""`torch.distributed.rpc` for packages that import it: remote calls are not available."""

from __future__ import annotations

from lucid_gpu.compat.refused import refused

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether functions can be called on other ranks: they cannot; collectives move tensors."""
    return False


_ABSENT = "RRef TensorPipeRpcBackendOptions init_rpc remote rpc_async rpc_sync shutdown"
_INSTEAD = "functions are not called on other ranks; collectives, send and recv move tensors"
globals().update({name: refused(f"distributed.rpc.{name}", _INSTEAD) for name in _ABSENT.split()})
