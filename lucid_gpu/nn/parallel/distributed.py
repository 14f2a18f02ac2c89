"""`DistributedDataParallel`: gradients are averaged over all ranks while backward runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import tensor as new_tensor
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["DistributedDataParallel"]

_FIRST = 1 << 20  # bytes of the first bucket: it travels while most of backward is to come


class DistributedDataParallel(Module):
    r"""Calls ``module``; backward leaves the mean gradient of all ranks in ``.grad``.

    :math:`g = \frac{1}{n} \sum_{r=1}^{n} g_r`. All ranks start with rank 0's parameters and
    buffers. Buckets of gradients travel in the same order on all ranks, as soon as backward has
    computed them.

    Parameters
    ----------
    module : Module
        The same on all ranks; parameters keep the names ``"module.*"``.
    device_ids : sequence, optional
        None or one device; where ``module`` is.
    output_device, dim, check_reduction, gradient_as_bucket_view
        Taken and unused.
    broadcast_buffers : bool, optional
        Give all ranks rank 0's buffers before each forward in training; True by default.
    init_sync : bool
        Compare parameters' shapes, and give all ranks rank 0's values, at the start.
    process_group : ProcessGroup, optional
    bucket_cap_mb : float, optional
        Largest size of a bucket in MiB, 25 by default.
    find_unused_parameters : bool
        Walk from the outputs: parameters that they do not depend on are not waited for.
    static_graph : bool
        As ``find_unused_parameters``.

    Raises
    ------
    RuntimeError
        Where nothing requires grad, or ranks have other parameters.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        self.process_group = dist.group.WORLD if process_group is None else process_group
        dist.get_world_size(self.process_group)  # raises where there is no group
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._names = [name for name, p in named if p.requires_grad]
        self._trained: list[Parameter] = [p for _, p in named if p.requires_grad]
        self._ignored = ignored
        if not self._trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = device_ids, output_device
        self.broadcast_buffers = broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        if init_sync:
            self._compare([(n, list(p.shape), str(p.dtype), p.requires_grad) for n, p in named])
            self._broadcast([p for _, p in named] + self._buffers_of())
        cap = 25.0 if bucket_cap_mb is None else bucket_cap_mb
        self._buckets = _cut(self._trained, int(cap * (1 << 20)))
        self._expecting = self._started = False
        self._missing: set[int] = set()
        self._unused: set[int] = set()
        self._flying: list[tuple[list[int], Tensor, Any]] = []
        self._listen()

    def _listen(self) -> None:
        for i, parameter in enumerate(self._trained):
            parameter.register_post_accumulate_grad_hook(self._hook(i))

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not dist.group.WORLD:
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default "
                "process group. That is, when you have called init_process_group and have not "
                "passed process_group argument to DDP constructor"
            )
        return {k: v for k, v in self.__dict__.items() if k != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = dist.group.WORLD
        self._listen()  # a copy's parameters have no hooks

    def _compare(self, mine: list[Any]) -> None:
        every: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(every, mine, self.process_group)
        for rank, theirs in enumerate(every):
            for first, other in zip(every[0], theirs):
                if first != other:
                    raise RuntimeError(
                        f"DDP expects same model across all ranks, but rank {rank} has {other[0]} "
                        f"of shape {other[1]}, dtype {other[2]}, requires_grad={other[3]}, while "
                        f"rank 0 has {first[0]} of shape {first[1]}, dtype {first[2]}, "
                        f"requires_grad={first[3]}."
                    )
            if len(theirs) != len(every[0]):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank {rank} has {len(theirs)} "
                    f"params, while rank 0 has inconsistent {len(every[0])} params."
                )

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        works = [
            dist.broadcast(t, group=self.process_group, async_op=True, group_src=0) for t in tensors
        ]
        for work in works:
            work.wait()

    def _buffers_of(self) -> list[Tensor]:
        return [b for n, b in self.module.named_buffers() if n not in self._ignored]

    # --- forward ------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """``module(*inputs, **kwargs)``."""
        learns = is_grad_enabled() and self.require_backward_grad_sync
        if learns and self._started:
            names = ", ".join(self._names[i] for i in sorted(self._missing))
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                "one. This error indicates that your module has parameters that were not used in "
                "producing loss. You can enable unused parameter detection by passing the keyword "
                "argument `find_unused_parameters=True` to "
                "`torch.nn.parallel.DistributedDataParallel`. Parameters which did not receive "
                f"grad: {names}"
            )
        if self.broadcast_buffers and self.training and self.require_backward_grad_sync:
            self._broadcast(self._buffers_of())
        result = self.module(*inputs, **kwargs)
        self._expecting = learns
        if learns:
            self._missing = set(range(len(self._trained)))
            self._unused = self._unreached(result) if self.find_unused_parameters else set()
        return result

    def _unreached(self, result: Any) -> set[int]:
        """Which parameters the tensors inside a result do not depend on."""
        reached: set[int] = set()
        seen: set[Any] = set()
        ends = list(_tensors(result))
        reached.update(id(t) for t in ends)
        nodes = [t.grad_fn for t in ends if t.grad_fn is not None]
        while nodes:
            node = nodes.pop()
            if node in seen:
                continue
            seen.add(node)
            reached.add(id(getattr(node, "variable", None)))
            nodes.extend(below for below, _ in node.next_functions if below is not None)
        return {i for i, p in enumerate(self._trained) if id(p) not in reached}

    # --- backward -----------------------------------------------------------------------------

    def _hook(self, i: int) -> Any:
        def ready(_: Tensor) -> None:
            if not self._expecting:
                return
            if i not in self._missing:
                raise RuntimeError(
                    "Expected to mark a variable ready only once. Parameter "
                    f"{self._names[i]} received two gradients in one pass."
                )
            self._missing.discard(i)
            if not self._started:
                self._started = True
                self._missing -= self._unused
            self._launch()

        return ready

    def _launch(self) -> None:
        """Let buckets travel that are complete; strictly in order, so that ranks agree."""
        while len(self._flying) < len(self._buckets):
            bucket = self._buckets[len(self._flying)]
            if not self._missing.isdisjoint(bucket):
                return
            with no_grad():
                flat = cat([_gradient(self._trained[i]).reshape(-1) for i in bucket])
            work = dist.all_reduce(flat, dist.ReduceOp.AVG, self.process_group, async_op=True)
            self._flying.append((bucket, flat, work))
        self._finish()

    def _finish(self) -> None:
        """Wait for all buckets, and write the means to ``.grad``."""
        somewhere = [1] * len(self._trained)
        if self.find_unused_parameters:
            used = [int(i not in self._unused) for i in range(len(self._trained))]
            counts = new_tensor(used)
            dist.all_reduce(counts, group=self.process_group)
            somewhere = counts.tolist()
        for bucket, flat, work in self._flying:
            work.wait()
            parts = flat.split([self._trained[i].numel() for i in bucket])
            for i, part in zip(bucket, parts):
                if somewhere[i]:
                    _take(self._trained[i], part)
        self._flying = []
        self._expecting = self._started = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients of forwards only accumulate on each rank."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _cut(parameters: Sequence[Parameter], cap: int) -> list[list[int]]:
    """Buckets of one device and dtype, in reverse order: backward comes to the last ones first."""
    buckets: list[list[int]] = []
    open_: dict[Any, tuple[list[int], int]] = {}
    for i in reversed(range(len(parameters))):
        p = parameters[i]
        size, key = p.numel() * p.element_size(), (p.device, p.dtype)
        bucket, held = open_.get(key, ([], cap))
        if held + size > (min(_FIRST, cap) if bucket and bucket is buckets[0] else cap):
            bucket, held = [], 0
            buckets.append(bucket)
        bucket.append(i)
        open_[key] = bucket, held + size
    return buckets


def _gradient(parameter: Parameter) -> Tensor:
    grad: Tensor | None = parameter.grad
    if grad is None:
        return zeros_like(parameter)
    if grad.is_sparse:
        raise NotImplementedError(
            "DistributedDataParallel: a gradient lists rows; write sparse=False"
        )
    return grad.detach()


def _take(parameter: Parameter, part: Tensor) -> None:
    with no_grad():
        part = part.view_as(parameter)
        if parameter.grad is None:
            parameter.grad = part.clone()
        else:
            parameter.grad.copy_(part)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors inside tuples, lists, dictionaries and objects with fields."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif hasattr(value, "__dict__"):
        yield from _tensors(vars(value))
