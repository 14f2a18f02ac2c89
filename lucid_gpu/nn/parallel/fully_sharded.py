"""`fully_shard`: each rank keeps some rows of each parameter, its gradient and its state.

A module's parameters are gathered before its forward, and again when its backward reads them.
Gradients are averaged, and each rank gets those of its rows. What forward saved of gathered
parameters are notes of where it lay (`_Note`), so that their memory is free in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid_gpu import distributed as dist
from lucid_gpu.autograd import Function
from lucid_gpu.autograd.function import once_differentiable
from lucid_gpu.autograd.saved_hooks import saved_tensors_hooks
from lucid_gpu.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucid_gpu.distributed.tensor import DTensor, Gathering, Sharding, mean_of_rows, take_over
from lucid_gpu.dtypes import dtype as DType
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter, UninitializedParameter
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled, no_grad, state
from lucid_gpu.tensor import Tensor, as_kind

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "ShardedParameter",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The types that `fully_shard` computes in; parameters keep theirs.

    Attributes
    ----------
    param_dtype : dtype, optional
        Of gathered parameters and what is computed with them; by default the parameters' own.
    reduce_dtype : dtype, optional
        Of gradients while they are averaged; by default the type they come in.
    output_dtype : dtype, optional
        Of the module's results.
    cast_forward_inputs : bool
        Cast floating point arguments of forward to ``param_dtype``.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class OffloadPolicy:
    """Rows stay on the device that computes with them."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Rows lie on the host, where the parameters must be already."""

    pin_memory: bool = True


class ShardedParameter(DTensor, Parameter, asked=False):
    """A parameter of which this rank holds some rows."""


# --- one group of parameters --------------------------------------------------------------------


class _Note(NamedTuple):
    """What stands in the graph for a gathered parameter, or for a view of it."""

    group: _Group
    number: int
    version: int  # of the rows
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _put_away(tensor: Tensor) -> Any:
    """A note in the place of what shares memory with a gathered parameter."""
    storage = tensor._storage
    for group in reversed(state.surroundings) if storage is not None else ():
        index = group.gathered.get(getattr(storage, "memory", storage))
        if index is not None and tensor.dtype == group.dtype_of(group.parameters[index]):
            version = group.parameters[index]._version
            shape, strides = tuple(tensor.shape), tuple(tensor.stride())
            return _Note(group, index, version, shape, strides, tensor.storage_offset())
    if not tensor._expr.program.is_load and _reads_gathered(set(tensor._expr.leaves)):
        tensor._realize()  # else it would keep what it reads
    return tensor


def _reads_gathered(leaves: set[Any]) -> bool:
    """Whether some of a pending value's leaves are gathered parameters."""
    storages = [storage for group in state.surroundings for storage in group.gathered]
    return any(cell() in leaves for storage in storages for cell in storage.cells)


def _take_out(kept: Any) -> Any:
    """The tensor that `_put_away` was given."""
    if not isinstance(kept, _Note):
        return kept
    group, index = kept.group, kept.number
    version = group.parameters[index]._version
    if version != kept.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: parameter {group.names[index]} is at version {version}; expected version "
            f"{kept.version} instead."
        )
    whole = group.values()[index]
    if tuple(whole.shape) == kept.shape and tuple(whole.stride()) == kept.strides:
        return whole
    return whole.as_strided(kept.shape, kept.strides, kept.offset)


class _Group:
    """Parameters that are gathered together, the modules that have them, and how.

    Attributes
    ----------
    parameters : list of ShardedParameter
    gathered : dict
        Which parameter's whole value lies in a memory, while forward runs.
    syncs : bool
        Whether backward averages gradients; else each rank adds its own up in ``held``.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        names: Sequence[str],
        owners: Sequence[list[tuple[Module, str]]],
        mesh: DeviceMesh,
        policy: MixedPrecisionPolicy,
        reshards: bool | None,
    ) -> None:
        self.parameters, self.names, self.owners = list(parameters), list(names), list(owners)
        self.mesh, self.policy = mesh, policy
        self.reshards, self.reshards_after_backward, self.syncs = reshards, True, True
        self.fetches_forward: list[_Group] = []
        self.fetches_backward: list[_Group] = []
        self.gathered: dict[Any, int] = {}
        self.held: list[Tensor | None] = [None] * len(self.parameters)
        self._under_way: list[tuple[list[int], Gathering]] | None = None
        self._values: list[Any] | None = None
        self._versions: list[int] = []
        self._before: list[tuple[list[Any], dict[Any, int], bool]] = []

    # --- values -------------------------------------------------------------------------------

    def dtype_of(self, parameter: Tensor) -> Any:
        """The type that a parameter is used in."""
        wanted, own = self.policy.param_dtype, parameter.dtype
        return wanted if wanted is not None and own.is_floating_point else own

    def _alike(self, indices: Iterable[int], key: Callable[[int], Any]) -> list[list[int]]:
        """Parameters of one type and device, which travel together, in an order all ranks have."""
        batches: dict[Any, list[int]] = {}
        for i in indices:
            batches.setdefault((key(i), self.parameters[i].device), []).append(i)
        return list(batches.values())

    def begin(self) -> None:
        """Let rows travel, if the whole values are not here already."""
        versions = [p._version for p in self.parameters]
        here = self._values is not None or self._under_way is not None
        if here and versions == self._versions:
            return
        self.drop()
        self._versions, self._under_way = versions, []
        every = range(len(self.parameters))
        with no_grad():
            for some in self._alike(every, lambda i: self.dtype_of(self.parameters[i])):
                rows = [self.parameters[i].to_local() for i in some]
                rows = [r.to(self.dtype_of(r)) for r in rows]
                shardings = [self.parameters[i].sharding for i in some]
                self._under_way.append((some, Gathering(rows, shardings)))

    def values(self) -> list[Tensor]:
        """The whole values, gathered where they are not here."""
        self.begin()
        if self._values is None:
            gathered: list[Any] = [None] * len(self.parameters)
            for some, gathering in self._under_way or ():
                for i, whole in zip(some, gathering.wait(), strict=True):
                    gathered[i] = whole
            self._values, self._under_way = gathered, None
            if state.task is not None:
                for group in self.fetches_backward:
                    group.begin()
        return self._values

    def drop(self) -> None:
        """Let go of whole values; what is under way is waited for, since ranks must not differ."""
        for _, gathering in self._under_way or ():
            gathering.wait()
        self._values, self._under_way, self._versions = None, None, []

    def put(self, values: Sequence[Any]) -> None:
        """Let the modules see these as their parameters."""
        for value, owners in zip(values, self.owners, strict=True):
            for module, name in owners:
                module._parameters[name] = value

    def seen(self) -> list[Any]:
        """What the modules see as their parameters now."""
        return [owners[0][0]._parameters[owners[0][1]] for owners in self.owners]

    # --- forward ------------------------------------------------------------------------------

    def _whole(self, inputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], list[Parameter]]:
        """The inputs, tied to the node that backward ends at, and whole parameters."""
        whole = self.values()
        for group in self.fetches_forward:
            group.begin()
        if is_grad_enabled() and (inputs or any(p.requires_grad for p in self.parameters)):
            around, state.surroundings = state.surroundings, ()  # its backward calls no module
            results = _Gathered.apply(
                self, len(inputs), *inputs, *[p.rows for p in self.parameters]
            )
            state.surroundings = around
            return results[: len(inputs)], [_shown(v) for v in results[len(inputs) :]]
        return tuple(inputs), [_shown(value.alias()) for value in whole]

    def enter(self, inputs: Sequence[Tensor], reshards: bool) -> tuple[Tensor, ...]:
        """Gather, and let modules see whole parameters; gives the inputs to compute with.

        Where some parameters are frozen, backward has read them all once it has come to the
        inputs, and the inputs are tied to it; gradients of parameters alone would come too early.
        """
        tied = any(not p.requires_grad for p in self.parameters)
        results, shown = self._whole(inputs if tied else ())
        self._before.append((self.seen(), self.gathered, reshards))
        self.gathered = {value._storage: i for i, value in enumerate(shown)}
        self.put(shown)
        return results if tied else tuple(inputs)

    def leave(self) -> None:
        """Let modules see again what they saw before; rows after the outermost forward."""
        seen, self.gathered, reshards = self._before.pop()
        self.put(seen if self._before else self.parameters)
        if reshards and not self._before:
            self.drop()

    @contextmanager
    def whole(self, inputs: Sequence[Tensor], reshards: bool) -> Iterator[tuple[Tensor, ...]]:
        """A context in which modules see whole parameters, as `enter` says."""
        tied, around = self.enter(inputs, reshards), state.surroundings
        state.surroundings = (*around, self)
        try:
            yield tied
        finally:
            state.surroundings = around
            self.leave()

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same in backward, for code of forward that it calls; values are kept until `take`.

        What a backward inside this one comes to is averaged as the other gradients are.
        """
        with ExitStack() as stack:
            with enable_grad():
                stack.enter_context(self.whole((), False))
            yield

    def unshard(self) -> None:
        """Let modules see whole parameters until `reshard`."""
        if any(s is p for s, p in zip(self.seen(), self.parameters, strict=True)):
            self.put(self._whole(())[1])

    def reshard(self) -> None:
        """Let modules see this rank's rows, and let go of whole values."""
        if not self._before:
            self.put(self.parameters)
        self.drop()

    # --- backward -----------------------------------------------------------------------------

    def take(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """This rank's rows of the mean of whole gradients; None for those no rank has."""
        if self.reshards_after_backward:
            self.drop()
        trained = [i for i, p in enumerate(self.parameters) if p.requires_grad]
        summed: list[Tensor | None] = [None] * len(self.parameters)
        for i in trained:
            summed[i] = _sum(self.held[i], self._to_reduce(gradients[i]))
        if not self.syncs:
            self.held = summed
            return [None] * len(self.parameters)
        self.held = [None] * len(self.parameters)
        reduced: list[Tensor | None] = [None] * len(self.parameters)
        for some in self._alike(trained, lambda i: self._reduced_in(self.parameters[i])):
            shardings, like = [self.parameters[i].sharding for i in some], self.parameters[some[0]]
            kind = self._reduced_in(like)
            means = mean_of_rows([summed[i] for i in some], shardings, kind, like.rows)
            for i, rows in zip(some, means, strict=True):
                reduced[i] = rows
        return reduced

    def _reduced_in(self, parameter: Tensor) -> Any:
        return self.policy.reduce_dtype or self.dtype_of(parameter)

    def _to_reduce(self, gradient: Tensor | None) -> Tensor | None:
        if gradient is None:
            return None
        if gradient._is_sparse:
            raise NotImplementedError("fully_shard: a gradient lists rows; write sparse=False")
        gradient = gradient.detach()
        return gradient.to(self.policy.reduce_dtype or gradient.dtype)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _shown(value: Tensor) -> Parameter:
    """A whole value as modules see it: a parameter that was computed."""
    value._memory()
    return as_kind(Parameter, value)


class _Gathered(Function):
    """From a module's arguments and this rank's rows to the arguments and whole parameters.

    Its backward runs once the module's backward is complete, whose parts come to one of both.
    """

    @staticmethod
    def forward(ctx: Any, group: _Group, count: int, *tensors: Tensor) -> Any:
        ctx.group, ctx.count = group, count
        ctx.set_materialize_grads(False)
        inputs, rows = tensors[:count], tensors[count:]
        whole = [value.alias() for value in group.values()]
        ctx.mark_non_differentiable(
            *[v for v, p in zip(whole, rows, strict=True) if not p.requires_grad]
        )
        return (*[t.alias() for t in inputs], *whole)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs, whole = gradients[: ctx.count], gradients[ctx.count :]
        return (None, None, *inputs, *ctx.group.take(whole))


# --- modules ------------------------------------------------------------------------------------


class UnshardHandle:
    """The handle of `FSDPModule.unshard` with ``async_op``; parameters are whole after `wait`."""

    def __init__(self, group: _Group | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Wait, and let the module see whole parameters."""
        if self._group is not None:
            self._group.unshard()
            self._group = None


class FSDPModule(Module):
    """The additional base class of a module to which `fully_shard` was applied."""

    _fsdp_group: _Group
    _fsdp_policy: MixedPrecisionPolicy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _gathered_call(self, super().__call__, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise AssertionError(
            "FSDP does not support deepcopy. Please use state dict for serialization."
        )

    def _groups(self, recurse: bool = True) -> list[_Group]:
        modules = self.modules() if recurse else [self]
        groups = {id(m._fsdp_group): m._fsdp_group for m in modules if isinstance(m, FSDPModule)}
        return list(groups.values())

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's parameters, not those of modules below that are sharded apart.

        The module sees them until its next forward ends, or `reshard`; all ranks call it.

        Parameters
        ----------
        async_op : bool
            Return at once; the handle's `UnshardHandle.wait` is to be called before forward.
        """
        group = self._fsdp_group
        if async_op:
            group.begin()
            return UnshardHandle(group)
        group.unshard()
        return None

    def reshard(self) -> None:
        """Let go of gathered parameters."""
        self._fsdp_group.reshard()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward averages gradients; else each rank adds whole ones up until it does."""
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted for compatibility: what a backward has begun is done when it ends."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether whole parameters are freed after forward and gathered again in backward.

        Raises
        ------
        ValueError
            For anything but a bool.
        """
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(
                f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}"
            )
        for group in self._groups(recurse):
            group.reshards = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether whole parameters are let go of once backward has passed the module."""
        for group in self._groups(recurse):
            group.reshards_after_backward = reshard_after_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of gradients by this, in place of the number of ranks."""
        for parameter in self._fsdp_group.parameters:
            parameter.sharding = parameter.sharding._replace(divisor=float(factor))

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The older name of `set_gradient_divide_factor`."""
        self.set_gradient_divide_factor(factor)

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Let parameters of these modules begin to travel when this one's forward begins."""
        self._fsdp_group.fetches_forward = [m._fsdp_group for m in modules]

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Let parameters of these modules begin to travel when this one's backward begins."""
        self._fsdp_group.fetches_backward = [m._fsdp_group for m in modules]


def _gathered_call(
    module: FSDPModule, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method of a module, with its parameters gathered and its arguments cast."""
    group, policy = module._fsdp_group, module._fsdp_policy
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        args, kwargs = _cast((args, kwargs), policy.param_dtype)
    reshards = bool(state.surroundings) if group.reshards is None else group.reshards
    inputs = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    # Other hooks, as of a checkpoint, keep what they are given as they do without us.
    watches = reshards and is_grad_enabled() and not state.hooks and state.no_hooks is None
    hooks = saved_tensors_hooks(_put_away, _take_out) if watches else nullcontext()
    with group.whole(inputs, reshards) as tensors:
        tied = iter(tensors)
        args, kwargs = _replaced((args, kwargs), lambda t: next(tied) if t.requires_grad else t)
        with hooks:
            result = call(*args, **kwargs)
    return result if policy.output_dtype is None else _cast(result, policy.output_dtype)


def _replaced(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A value with the tensors inside tuples, lists and dictionaries changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        parts = [_replaced(one, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [_replaced(one, change) for one in value]
    if type(value) is dict:
        return {key: _replaced(one, change) for key, one in value.items()}
    return value


def _tensors(value: Any) -> list[Tensor]:
    """The tensors that `_replaced` comes to, in its order."""
    tensors: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    _replaced(value, take)
    return tensors


def _cast(value: Any, to: DType) -> Any:
    return _replaced(value, lambda t: t.to(to) if t.is_floating_point() else t)


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Keep only some rows of a module's parameters on each rank; in place.

    Zhao and others, PyTorch FSDP: experiences on scaling fully sharded data parallel (2023).
    Parameters of submodules that are already sharded stay separate: shard layers first, then the
    whole model. Parameters become `ShardedParameter`, the same objects; all ranks must have the
    same values. The module's class becomes one derived from `FSDPModule`.

    Parameters
    ----------
    module : Module or list of Module
        Several are gathered together.
    mesh : DeviceMesh, optional
        By default one dimension of all ranks. In a mesh of two dimensions, the first holds copies,
        and ranks along the second share the rows.
    reshard_after_forward : bool, optional
        Free whole parameters after forward. The default is True except for the outermost module,
        whose backward follows at once.
    shard_placement_fn, dp_mesh_dims
        None.
    mp_policy : MixedPrecisionPolicy, optional
    offload_policy : OffloadPolicy, optional
    ignored_params : set of Parameter, optional
        They stay whole on each rank; their gradients are not averaged.

    Returns
    -------
    module

    Raises
    ------
    AssertionError
        If it was applied to the module before.
    ValueError
        For containers without forward, meshes of more dimensions, parameters without dimensions,
        and those that another call has sharded.
    NotImplementedError
        For parameters that are not row-major, lists of modules of different classes apart.
    RuntimeError
        If a parameter already has a gradient.
    TypeError
        For anything but a module or a list of modules.
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    if shard_placement_fn is not None or dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard: parameters are cut along dimension 0, over the last dimension of the "
            "mesh; leave shard_placement_fn and dp_mesh_dims out"
        )
    for one in modules:
        _check_module(one)
    ignored = {id(p) for p in ignored_params or ()}
    names, parameters, owners = _managed(modules, ignored)
    for name, parameter in zip(names, parameters, strict=True):
        _check_parameter(name, parameter)
    if isinstance(offload_policy, CPUOffloadPolicy) and any(p.is_cuda for p in parameters):
        raise NotImplementedError("fully_shard: rows stay on the device that computes with them")
    mesh = _mesh_for(parameters) if mesh is None else mesh
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    reshards = _whether(reshard_after_forward, mesh)
    policy = MixedPrecisionPolicy() if mp_policy is None else mp_policy
    for parameter in parameters:
        _shard(parameter, mesh)
    group = _Group(parameters, names, owners, mesh, policy, reshards)
    for one in modules:
        kind = type(one)
        one._fsdp_group, one._fsdp_policy = group, policy
        one.__class__ = _derived(kind)
    return module


_classes: dict[type[Module], type[Module]] = {}


def _derived(kind: type[Module]) -> type[Module]:
    made = _classes.get(kind)
    if made is None:
        name, own = f"FSDP{kind.__name__}", {"__module__": kind.__module__}
        made = _classes[kind] = type(name, (FSDPModule, kind), own)
    return made


def _check_module(module: Any) -> None:
    if not isinstance(module, Module):
        raise TypeError(f"fully_shard expects a Module, got {type(module).__name__}")
    if isinstance(module, FSDPModule):
        raise AssertionError(
            "Each distinct composable distributed API can only be applied to a module once. "
            f"fully_shard has already been applied to the following module:\n{module}"
        )
    if type(module).forward is Module.forward:
        raise ValueError(
            f"fully_shard does not support containers that do not implement forward: {module}"
        )


def _managed(
    modules: Sequence[Module], ignored: set[int]
) -> tuple[list[str], list[Any], list[list[tuple[Module, str]]]]:
    """Parameters that no module below has to itself: their names, and all who see them."""
    names: list[str] = []
    parameters: list[Any] = []
    owners: list[list[tuple[Module, str]]] = []
    known: dict[int, int] = {}
    seen: set[int] = set()
    for root in modules:
        pending = [("", root)]
        while pending:
            prefix, one = pending.pop(0)
            if id(one) in seen or (isinstance(one, FSDPModule) and one is not root):
                continue
            seen.add(id(one))
            for name, parameter in one._parameters.items():
                if parameter is None or id(parameter) in ignored:
                    continue
                if isinstance(parameter, ShardedParameter):
                    raise ValueError(
                        f"Parameter '{prefix}{name}' is shared with a parameter already managed by "
                        "another FSDP group. For shared/tied parameters, use "
                        "fully_shard([module_a, module_b]) to place them in the same FSDP group."
                    )
                if id(parameter) not in known:
                    known[id(parameter)] = len(parameters)
                    names.append(prefix + name)
                    parameters.append(parameter)
                    owners.append([])
                owners[known[id(parameter)]].append((one, name))
            below = [(f"{prefix}{n}.", m) for n, m in one._modules.items() if m is not None]
            pending[:0] = below
    return names, parameters, owners


def _check_parameter(name: str, parameter: Any) -> None:
    if isinstance(parameter, UninitializedParameter):
        tuple(parameter.shape)  # raises
    if type(parameter) is not Parameter:
        raise NotImplementedError(
            f"fully_shard: parameter {name} is of class {type(parameter).__name__}"
        )
    if not parameter.ndim:
        raise ValueError(
            "fully_shard doesn't support scalar parameters. "
            f"Change {name} to a 1D tensor with numel equal to 1."
        )
    if not parameter.is_contiguous():
        raise NotImplementedError(
            "FSDP does not support non-contiguous parameters yet: "
            f"param.shape={parameter.shape} param.stride()={tuple(parameter.stride())}"
        )
    if parameter.grad is not None:
        raise RuntimeError(
            f"fully_shard: parameter {name} has a gradient already; call zero_grad() before"
        )


def _mesh_for(parameters: Sequence[Tensor]) -> DeviceMesh:
    if not dist.is_initialized():
        dist.init_process_group()
    kind = parameters[0].device.type if parameters else "cpu"
    return init_device_mesh(kind, (dist.get_world_size(),))


def _whether(reshards: Any, mesh: DeviceMesh) -> bool | None:
    if reshards is None or isinstance(reshards, bool):
        return reshards
    if not isinstance(reshards, int):
        raise ValueError(
            "reshard_after_forward should be a bool or an int representing the group size to "
            f"reshard to, not {reshards}"
        )
    ranks = mesh.size(mesh.ndim - 1)
    if ranks % reshards:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {ranks}, not "
            f"{reshards}"
        )
    if reshards not in (1, ranks):
        raise NotImplementedError(
            "fully_shard: parameters are kept whole after forward, or by all ranks of the mesh; "
            f"write reshard_after_forward=True or False instead of {reshards}"
        )
    return reshards == ranks


def _shard(parameter: Any, mesh: DeviceMesh) -> None:
    """Let a parameter, which stays the same object, keep this rank's rows only."""
    take_over(parameter, ShardedParameter, Sharding(mesh, tuple(parameter.shape)))


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let a method of a module, such as ``generate``, see whole parameters, as forward does.

    Raises
    ------
    ValueError
        If the module has no such method. Modules that are not sharded are left as they are.
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method = getattr(module, method_name)

    @functools.wraps(method)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        return _gathered_call(module, method, args, kwargs)

    setattr(module, method_name, gathered)
