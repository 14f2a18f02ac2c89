"""Hooks that average gradients: as they are, or in 16 bits on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.compat.future import Future
from lucid_gpu.distributed import collectives, groups
from lucid_gpu.distributed.grad_bucket import GradBucket
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.tensor import Tensor

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]

Hook = Callable[[Any, GradBucket], Future]


def _mean(process_group: Any, tensor: Tensor) -> Future:
    group = groups.resolved(process_group)
    work = collectives.all_reduce(tensor, ReduceOp.AVG, group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(process_group: Any, bucket: GradBucket, kind: dt.dtype) -> Future:
    buffer = bucket.buffer()
    future = _mean(process_group, buffer.to(kind))
    return future.then(lambda done: buffer.copy_(done.value()))


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean of all ranks: what happens without a hook."""
    return _mean(process_group, bucket.buffer())


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean of gradients that were rounded to float16."""
    return _compressed(process_group, bucket, dt.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean of gradients that were rounded to bfloat16."""
    return _compressed(process_group, bucket, dt.bfloat16)


def _wrapped(hook: Hook, kind: dt.dtype) -> Hook:
    def compressing(state: Any, bucket: GradBucket) -> Future:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(kind))
        return hook(state, bucket).then(lambda done: buffer.copy_(done.value()))

    return compressing


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that another one's gradients reach as float16."""
    return _wrapped(hook, dt.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that another one's gradients reach as bfloat16."""
    return _wrapped(hook, dt.bfloat16)
