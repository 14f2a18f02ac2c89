"""`DistributedDataParallel`: gradients are averaged over all ranks while backward runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.compat.future import Future
from lucid_gpu.core.engine import queue_callback
from lucid_gpu.distributed.algorithms.join import Join, Joinable, JoinHook
from lucid_gpu.distributed.collectives import joined
from lucid_gpu.distributed.grad_bucket import GradBucket
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import tensor as new_tensor
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["DistributedDataParallel"]

_FIRST = 1 << 20  # bytes of the first bucket: it travels while most of backward is to come


class DistributedDataParallel(Module, Joinable):
    r"""Calls ``module``; backward leaves the mean gradient of all ranks in ``.grad``.

    :math:`g = \frac{1}{n} \sum_{r=1}^{n} g_r`. All ranks start with rank 0's parameters and
    buffers. Buckets of gradients travel in the same order on all ranks, as soon as backward has
    computed them; after the first backward they are cut anew, in the order rank 0's came in.

    Parameters
    ----------
    module : Module
        The same on all ranks; parameters keep the names ``"module.*"``.
    device_ids : sequence, optional
        None or one device; where ``module`` is.
    output_device, dim, check_reduction
        Accepted and ignored.
    broadcast_buffers : bool, optional
        Give all ranks rank 0's buffers before each forward in training, and the first after it;
        True by default.
    init_sync : bool
        Compare parameters' shapes, and give all ranks rank 0's values, at the start.
    process_group : ProcessGroup, optional
    bucket_cap_mb : float, optional
        Largest size of a bucket in MiB, 25 by default.
    find_unused_parameters : bool
        Walk from the outputs: parameters that they do not depend on are not waited for.
    gradient_as_bucket_view : bool
        Let ``.grad`` be a view of the memory that travels: gradients take no memory beside it, and
        what backward adds to a gradient that is there is not copied. Zero gradients with
        ``set_to_none=False`` for that. `detach_` of such a gradient raises, as for any view.
    static_graph : bool
        Each backward writes the same gradients, as often as the first did: parameters may be
        unused, and used by several checkpoints. The first backward's buckets travel at its end.

    Raises
    ------
    RuntimeError
        If nothing requires grad, or ranks have other parameters.
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
        self.find_unused_parameters = find_unused_parameters
        self.static_graph, self.gradient_as_bucket_view = static_graph, gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if init_sync:
            self._compare([(n, list(p.shape), str(p.dtype), p.requires_grad) for n, p in named])
            self._broadcast([p for _, p in named] + self._buffers_of())
        self.bucket_bytes_cap = int((25.0 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        every = range(len(self._trained))
        self._buckets = _cut(self._trained, self.bucket_bytes_cap, [*reversed(every)])
        self._arrived: (
            dict[int, None] | None
        ) = {}  # in the order of the first backward; None after it
        self._views: dict[int, Tensor] = {}  # of the buckets' memory, by parameter
        self._flats: dict[int, Tensor] = {}  # by bucket
        self._expecting = self._started = False
        self._missing: set[int] = set()
        self._unused: set[int] = set()
        # Of a static graph: how often a backward writes each gradient, and which ranks' any does.
        self._writes: list[int] | None = None
        self._written: list[int] = []
        self._somewhere: list[int] | None = None
        self._ends_later = False
        self._flying: list[tuple[list[int], Future]] = []
        self._hooked: tuple[Any, Callable[..., Any]] | None = None
        self._divides_by_active = False
        self._divisor = 0  # of sums inside `join`, where it is not the number of ranks
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
        own = {k: v for k, v in self.__dict__.items() if k != "process_group"}
        return own | {"_views": {}, "_flats": {}}

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

    def _broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        small: dict[Any, list[Tensor]] = {}
        for tensor in tensors:
            if tensor.nbytes < _FIRST:
                small.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        with no_grad():
            flats = [cat([t.detach().reshape(-1) for t in some]) for some in small.values()]
            whole = [*flats, *[t for t in tensors if t.nbytes >= _FIRST]]
            group = self.process_group
            works = [dist.broadcast(t, group=group, async_op=True, group_src=root) for t in whole]
            for work in works:
                work.wait()
            if dist.get_rank(group) == root:
                return
            for flat, some in zip(flats, small.values()):
                for tensor, part in zip(some, flat.split([t.numel() for t in some])):
                    tensor.detach().copy_(part.view(tensor.shape))

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
        self._divisor = 0
        if self._joining is not None:
            Join.notify_join_context(self)
            active = self._syncing(learns)
            self._divisor = active if self._divides_by_active else 0
            if learns:
                self._sync_buffers(True)
        elif self.broadcast_buffers and self.require_forward_param_sync:
            self._broadcast(self._buffers_of())
        result = self.module(*inputs, **kwargs)
        self._expecting = self.require_forward_param_sync = learns
        if learns:
            self._missing = set(range(len(self._trained)))
            if self.static_graph and self._writes is None:
                self._expect_first(result)
                return result
            self._unused = set()
            if self.static_graph:
                self._written = [0] * len(self._trained)
                self._unused = {i for i, times in enumerate(self._writes or ()) if not times}
            elif self.find_unused_parameters:
                self._unused = self._unreached(result)
            if len(self._unused) == len(self._trained):
                self._take_part_unused(result)
        return result

    def _expect_first(self, result: Any) -> None:
        """Let the first backward of a static graph count, and let buckets travel at its end."""
        self._written, self._ends_later = [0] * len(self._trained), False
        ends = [t for t in _tensors(result) if t.requires_grad]
        for end in ends:  # the outermost pass comes here, before those that checkpoints run in it
            end.register_hook(lambda _: self._end_later())
        if not ends:
            self._end_first()

    def _end_later(self) -> None:
        if self._expecting and self._writes is None and not self._ends_later:
            self._ends_later = True
            queue_callback(self._end_first)

    def _end_first(self) -> None:
        self._writes, self._started, self._missing = self._written, True, set()
        self._unused = {i for i, times in enumerate(self._writes) if not times}
        self._launch()

    def _take_part_unused(self, result: Any) -> None:
        """Let buckets of zeros travel: no parameter's hook will run, but other ranks wait.

        They are waited for when backward comes to an output, and here where it cannot.
        """
        self._started, self._missing = True, set()
        self._begin_buckets()
        ends = [t for t in _tensors(result) if t.requires_grad]

        def finish(_: Tensor) -> None:
            if self._started:
                self._finish()

        for end in ends:
            end.register_hook(finish)
        if not ends:
            self._finish()

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
            if self._arrived is not None:
                self._arrived.setdefault(i)
            if self.static_graph:
                self._written[i] += 1
                if self._writes is None:
                    self._end_later()
                    return
                if self._written[i] < self._writes[i]:
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
            if self._flying and self._trained[i].device.type == "cpu":
                self.process_group.progress()  # MPI moves on only when it is asked
            self._launch()

        return ready

    def _launch(self) -> None:
        """Let buckets travel that are complete, and wait for them once all do."""
        if self._begin_buckets():
            self._finish()

    def _begin_buckets(self) -> bool:
        """Let buckets travel, strictly in order, so that ranks agree; whether all do."""
        while len(self._flying) < len(self._buckets):
            bucket = self._buckets[len(self._flying)]
            if not self._missing.isdisjoint(bucket):
                return False
            with no_grad():
                flat = self._filled(bucket)
                self._flying.append((bucket, self._reduced(bucket, flat)))
        return True

    def _filled(self, bucket: list[int]) -> Tensor:
        """The gradients of a bucket in one flat tensor."""
        if not self.gradient_as_bucket_view:
            gradients = [_gradient(self._trained[i]) for i in bucket]
            return from_array(
                joined(gradients, gradients[0].device), gradients[0].dtype, gradients[0].device
            )
        flat = self._flats.get(bucket[0])
        if flat is None:
            flat = cat([zeros_like(self._trained[i]).detach().reshape(-1) for i in bucket])
            self._flats[bucket[0]] = flat
            parts = flat.split([self._trained[i].numel() for i in bucket])
            for i, part in zip(bucket, parts):
                self._views[i] = part.view(self._trained[i].shape)
        for i in bucket:
            parameter, view = self._trained[i], self._views[i]
            if parameter.grad is None:
                view.zero_()
            elif not _same_memory(parameter.grad, view):
                view.copy_(_gradient(parameter))
                parameter.grad = view
        return flat

    def _reduced(self, bucket: list[int], flat: Tensor) -> Future:
        if self._hooked is None:
            op = dist.ReduceOp.SUM if self._divisor else dist.ReduceOp.AVG
            work = dist.all_reduce(flat, op, self.process_group, async_op=True)
            pending: Future = work.get_future()
            return pending
        state, hook = self._hooked
        index = len(self._flying)
        last = index == len(self._buckets) - 1
        future = hook(state, GradBucket(index, flat, [self._trained[i] for i in bucket], last))
        if not isinstance(future, Future):
            raise TypeError(
                "register_comm_hook: the hook must return a futures.Future of the bucket's tensor, "
                f"such as dist.all_reduce(..., async_op=True).get_future(); got {future!r}"
            )
        return future

    def _finish(self) -> None:
        """Wait for all buckets, and write the means to ``.grad``."""
        somewhere = self._used_somewhere()
        for bucket, future in self._flying:
            with no_grad():
                flat = future.wait()
                flat = flat[0] if isinstance(flat, list) else flat
                if self._divisor and self._hooked is None:
                    flat = flat.div_(self._divisor)
            if self.gradient_as_bucket_view:
                self._show(bucket, flat, somewhere)
                continue
            array, start = flat.array, 0
            for i in bucket:
                parameter = self._trained[i]
                end = start + parameter.numel()
                if somewhere[i]:
                    _take(parameter, array[start:end])
                start = end
        self._flying = []
        self._expecting = self._started = False
        if self._arrived is not None:
            self._cut_anew(self._arrived)

    def _used_somewhere(self) -> list[int]:
        """How many ranks have a gradient of each parameter, as far as it matters."""
        if self._somewhere is not None:
            return self._somewhere
        if not self.find_unused_parameters and not self.static_graph:
            return [1] * len(self._trained)
        counts = new_tensor([int(i not in self._unused) for i in range(len(self._trained))])
        dist.all_reduce(counts, group=self.process_group)
        totals: list[int] = counts.tolist()
        self._somewhere = totals if self.static_graph else None
        return totals

    def _cut_anew(self, arrived: dict[int, None]) -> None:
        """Cut buckets in the order in which rank 0's gradients came, once."""
        self._arrived = None
        if self.find_unused_parameters and not self.static_graph:
            return  # the next backward may have others
        count = len(self._trained)
        order = new_tensor([*arrived, *[i for i in reversed(range(count)) if i not in arrived]])
        dist.broadcast(order, group=self.process_group, group_src=0)
        buckets = _cut(self._trained, self.bucket_bytes_cap, order.tolist())
        if buckets != self._buckets:
            self._buckets, self._flats, self._views = buckets, {}, {}

    def _show(self, bucket: list[int], flat: Tensor, somewhere: Sequence[int]) -> None:
        """Let ``.grad`` be views of a bucket that has come back."""
        own = self._flats[bucket[0]]
        with no_grad():
            if not _same_memory(flat, own):  # a hook's
                own.copy_(flat)
        for i in bucket:
            if somewhere[i] and self._trained[i].grad is None:
                self._trained[i].grad = self._views[i]

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Future]) -> None:
        """Let a function average gradients, instead of `all_reduce` with ``ReduceOp.AVG``.

        Parameters
        ----------
        state
            The function's first argument.
        hook : callable
            ``hook(state, bucket)`` begins what is to be done with a `GradBucket`, and returns a
            future of the flat tensor that its gradients become. See
            `distributed.algorithms.ddp_comm_hooks.default_hooks`.

        Raises
        ------
        RuntimeError
            If there is a hook already.
        TypeError
            For an argument that is not callable.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._hooked is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self._hooked = state, hook

    def _set_static_graph(self) -> None:
        """As ``static_graph=True``, before the first forward; what older scripts call."""
        self.static_graph = True

    # --- uneven inputs ------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context in which ranks may have different numbers of inputs.

        Parameters
        ----------
        divide_by_initial_world_size : bool
            Divide sums of gradients by the number of all ranks, not of those that still have
            inputs.
        enable : bool
        throw_on_early_termination : bool
            Raise on all ranks once one has no more inputs.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What `Join` calls where inputs have ended."""
        self._divides_by_active = not kwargs.get("divide_by_initial_world_size", True)
        return _Shadow(self)

    @property
    def join_device(self) -> Any:
        """Where the first parameter is."""
        return self._trained[0].device

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        return self.process_group

    def _syncing(self, mine: bool) -> int:
        """How many ranks, of those that have inputs, reduce gradients in this step: all or none."""
        wanted = new_tensor([int(mine)])
        dist.all_reduce(wanted, group=self.process_group)
        return int(wanted.item())

    def _last_rank(self, mine: bool) -> int:
        """The last of some ranks of the group."""
        rank = new_tensor([dist.get_rank(self.process_group) if mine else -1])
        dist.all_reduce(rank, dist.ReduceOp.MAX, self.process_group)
        return int(rank.item())

    def _shadow(self) -> None:
        """Take part in a step of ranks that have inputs, with gradients of zeros."""
        active = self._syncing(False)
        if not active:
            return
        self._sync_buffers(False)
        for parameter in self._trained:
            parameter.grad = None
        self._divisor = active if self._divides_by_active else 0
        self._missing, self._unused = set(), set(range(len(self._trained)))
        self._begin_buckets()
        self._finish()

    def _sync_buffers(self, mine: bool) -> None:
        """Inside `join`: give all ranks the buffers of the last that has inputs."""
        buffers = self._buffers_of()
        if buffers and self.broadcast_buffers and self.training:
            self._broadcast(buffers, self._last_rank(mine))

    def _end_join(self, last: bool) -> None:
        root = self._last_rank(last)
        self._broadcast([*self.module.parameters(), *self._buffers_of()], root)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients of forwards only accumulate on each rank."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


class _Shadow(JoinHook):
    """What a rank without inputs does while others train."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._ddp = ddp

    def main_hook(self) -> None:
        self._ddp._shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._ddp._end_join(is_last_joiner)


def _cut(parameters: Sequence[Parameter], cap: int, order: Sequence[int]) -> list[list[int]]:
    """Buckets of one device and dtype; ``order`` is that in which gradients are expected.

    A bucket ends with the parameter that fills it.
    """
    buckets: list[list[int]] = []
    open_: dict[Any, tuple[list[int], int]] = {}
    for i in order:
        p = parameters[i]
        key = p.device, p.dtype
        if key not in open_:
            open_[key] = [], 0
            buckets.append(open_[key][0])
        bucket, held = open_.pop(key)
        bucket.append(i)
        held += p.numel() * p.element_size()
        if held < (min(_FIRST, cap) if bucket is buckets[0] else cap):
            open_[key] = bucket, held
    return buckets


def _gradient(parameter: Parameter) -> Tensor:
    grad: Tensor | None = parameter.grad
    if grad is None:
        return zeros_like(parameter)
    if grad._is_sparse:
        raise NotImplementedError(
            "DistributedDataParallel: a gradient lists rows; write sparse=False"
        )
    return grad


def _same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one number of elements are the same elements."""
    mine, theirs = one._memory(), other._memory()
    return (
        getattr(mine, "memory", mine) is getattr(theirs, "memory", theirs)
        and one.storage_offset() == other.storage_offset()
        and one.stride() == other.stride()
    )


def _take(parameter: Parameter, part: Any) -> None:
    """Let a gradient have the values of a flat array."""
    shaped = part.reshape(tuple(parameter.shape))
    with no_grad():
        if parameter.grad is None:
            parameter.grad = from_array(shaped.copy(), parameter.dtype, parameter.device)
        else:
            parameter.grad.copy_(from_array(shaped, parameter.dtype, parameter.device))


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
