"""The time-outs of groups, in the module that PyTorch has them in."""

from __future__ import annotations

from lucid_gpu.distributed.groups import default_pg_nccl_timeout, default_pg_timeout

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
