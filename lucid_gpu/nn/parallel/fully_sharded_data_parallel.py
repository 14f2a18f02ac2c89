"""`FullyShardedDataParallel`: `fully_shard` as a module around another."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.amp import GradScaler
from lucid_gpu.device import device as Device
from lucid_gpu.distributed.device_mesh import DeviceMesh
from lucid_gpu.dtypes import dtype as DType
from lucid_gpu.nn.modules.batchnorm import _BatchNorm
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parallel.fully_sharded import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
)
from lucid_gpu.nn.parallel.wrap_policies import chosen
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.nn.utils.clip_grad import clip_grad_norm_
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "ShardedGradScaler",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]

_PREFIX = "_fsdp_wrapped_module."


class ShardingStrategy(enum.Enum):
    """When parameters are sharded: except in use, except from forward to backward, or never."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    """When parameters of the next layer travel in backward."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    """What `state_dict` gives: whole tensors, or this rank's rows."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


@dataclass
class StateDictConfig:
    """What tensors of a `state_dict` are: on the host if ``offload_to_cpu``."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole, and with ``rank0_only`` on the first rank alone."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Rows."""


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Rows."""


@dataclass
class OptimStateDictConfig:
    """The same of an optimizer, whose own ``state_dict`` holds rows: this one is kept only."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """See `OptimStateDictConfig`."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """See `OptimStateDictConfig`."""


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """See `OptimStateDictConfig`."""

    offload_to_cpu: bool = False


@dataclass
class StateDictSettings:
    """What `state_dict` gives: see `FullyShardedDataParallel.state_dict_type`."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig | None = None
    optim_state_dict_config: OptimStateDictConfig | None = None


@dataclass
class CPUOffload:
    """Whether parameters lie on the host while they are in rows."""

    offload_params: bool = False


@dataclass
class MixedPrecision:
    """The types to compute in; parameters keep theirs.

    Attributes
    ----------
    param_dtype, reduce_dtype : dtype, optional
        Of whole parameters, and of gradients while they are averaged.
    buffer_dtype : dtype, optional
        Of floating point buffers, from the start.
    keep_low_precision_grads : bool
        False.
    cast_forward_inputs, cast_root_forward_inputs : bool
        Cast arguments of layers that are sharded apart, and of the model.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[type[Module], ...] = (_BatchNorm,)


class FullyShardedDataParallel(Module):
    """Call a module of whose parameters each rank keeps some rows; see `fully_shard`.

    Parameters keep their names and are objects of their own, as with ``use_orig_params=True``.

    Parameters
    ----------
    module : Module
    process_group : ProcessGroup, optional
        The default group; for others pass ``device_mesh``.
    sharding_strategy : ShardingStrategy, optional
        ``FULL_SHARD`` by default; ``HYBRID_SHARD`` needs a ``device_mesh`` of two dimensions.
    cpu_offload, param_init_fn
        None.
    auto_wrap_policy : callable, optional
        Which layers are gathered apart, see `distributed.fsdp.wrap`; by default none.
    backward_prefetch, forward_prefetch, limit_all_gathers, use_orig_params
        Accepted for compatibility; they change neither results nor memory.
    mixed_precision : MixedPrecision, optional
    ignored_modules, ignored_states : iterable, optional
        Modules and parameters that stay whole.
    device_id : int or device, optional
        Where the module is moved.
    sync_module_states : bool
        Give all ranks the first one's parameters and buffers.
    device_mesh : DeviceMesh, optional

    Raises
    ------
    NotImplementedError
        For strategies and settings that are not implemented.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: int | Device | None = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if process_group is not None and process_group is not dist.group.WORLD:
            _refuse("process_group", "pass device_mesh=init_device_mesh(...)")
        if strategy is ShardingStrategy.NO_SHARD:
            _refuse("NO_SHARD", "use nn.parallel.DistributedDataParallel")
        if strategy.value > 3 and (device_mesh is None or device_mesh.ndim != 2):
            _refuse(f"{strategy.name} without it", "pass a device_mesh of two dimensions")
        if cpu_offload is not None and cpu_offload.offload_params:
            _refuse("CPUOffload(offload_params=True)", "parameters stay on their device")
        if param_init_fn is not None:
            _refuse("param_init_fn", "initialize the module before")
        if mixed_precision is not None and mixed_precision.keep_low_precision_grads:
            _refuse("keep_low_precision_grads=True", "gradients have their parameters' type")
        if device_id is not None:
            module.to(Device("cuda", device_id) if isinstance(device_id, int) else device_id)
        left_out = [*(ignored_modules or ()), *(ignored_states or ())]
        modules = [m for m in left_out if isinstance(m, Module)]
        ignored = {p for m in modules for p in m.parameters()}
        ignored |= {p for p in left_out if isinstance(p, Parameter)}
        if sync_module_states:
            _broadcast(module, ignored, device_mesh)
        reshards = strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
        options: dict[str, Any] = {
            "mesh": device_mesh,
            "reshard_after_forward": None if reshards else False,
            "ignored_params": ignored,
        }
        mixed = mixed_precision or MixedPrecision()
        for one in module.modules() if mixed.buffer_dtype is not None else ():
            for name, buffer in one._buffers.items():
                if buffer is not None and buffer.is_floating_point():
                    one._buffers[name] = buffer.to(mixed.buffer_dtype)
        if auto_wrap_policy is not None:
            for layer in chosen(module, auto_wrap_policy, {id(m) for m in modules}):
                self._shard_precise(layer, mixed, options)
                if not isinstance(layer, FSDPModule):
                    fully_shard(layer, mp_policy=_policy(mixed, False), **options)
        self._shard_precise(module, mixed, options)
        fully_shard(module, mp_policy=_policy(mixed, True), **options)
        self._fsdp_wrapped_module = module
        self._settings = StateDictSettings()
        self._register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _shard_precise(module: Module, mixed: MixedPrecision, options: dict[str, Any]) -> None:
        """Let layers that need their own type, such as batch norm, compute in it."""
        if mixed.param_dtype is None:
            return
        for layer in module.modules():
            if isinstance(layer, mixed._module_classes_to_ignore) and not isinstance(
                layer, FSDPModule
            ):
                own = next((p.dtype for p in layer.parameters()), None)
                if layer is not module and own is not None:
                    policy = MixedPrecisionPolicy(own, mixed.reduce_dtype, mixed.param_dtype)
                    fully_shard(layer, mp_policy=policy, **options)

    @property
    def module(self) -> Module:
        """The module that is called."""
        inner: Module = self._modules["_fsdp_wrapped_module"]  # type: ignore[assignment]
        return inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner = self.__dict__.get("_modules", {}).get("_fsdp_wrapped_module")
            if inner is None:
                raise
            return getattr(inner, name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        return self.module(*args, **kwargs)

    # --- names and states ---------------------------------------------------------------------

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Parameters under the names that they have in ``module``."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """Buffers under the names that they have in ``module``."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_PREFIX, ""), buffer

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The state dict of ``module``, by default of whole tensors; all ranks must call it then.

        See `state_dict_type`.
        """
        entries: dict[str, Any] = self.module.state_dict(*args, **kwargs)
        kind, config = self._settings.state_dict_type, self._settings.state_dict_config
        offloads = config is not None and config.offload_to_cpu
        for name, value in list(entries.items()):
            if kind is StateDictType.FULL_STATE_DICT and hasattr(value, "full_tensor"):
                value = value.full_tensor()
            entries[name] = value.cpu() if offloads and isinstance(value, Tensor) else value
        if getattr(config, "rank0_only", False) and dist.get_rank():
            entries.clear()
        return entries

    def _rename(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Before loading: names as they are below this module."""
        entries = [*super().named_parameters(remove_duplicate=False), *super().named_buffers()]
        owners = {name.replace(_PREFIX, ""): name for name, _ in entries}
        for key in [k for k in state_dict if k.startswith(prefix)]:
            name = owners.get(key[len(prefix) :], _PREFIX + key[len(prefix) :])
            if not key.startswith(prefix + _PREFIX):
                state_dict[prefix + name] = state_dict.pop(key)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The modules of this class in a model."""
        modules = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return modules[:1] if root_only else modules

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> StateDictSettings:
        """Say what `state_dict` gives from now on; what it gave so far is returned."""
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for one in FullyShardedDataParallel.fsdp_modules(module):
            one._settings = StateDictSettings(
                state_dict_type, state_dict_config, optim_state_dict_config
            )
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What `state_dict` gives."""
        modules = FullyShardedDataParallel.fsdp_modules(module, root_only=True)
        return modules[0]._settings if modules else StateDictSettings()

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> Iterator[None]:
        """A context in which `state_dict` gives whole tensors or rows.

        Parameters
        ----------
        module : Module
        state_dict_type : StateDictType
        state_dict_config : FullStateDictConfig or ShardedStateDictConfig, optional
        optim_state_dict_config : OptimStateDictConfig, optional
            Kept only: optimizers have a ``state_dict`` of rows.
        """
        modules = FullyShardedDataParallel.fsdp_modules(module)
        before = [one._settings for one in modules]
        FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for one, settings in zip(modules, before, strict=True):
                one._settings = settings

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """A context in which modules have whole parameters; all ranks must enter it.

        Parameters
        ----------
        module : Module
        recurse : bool
            Also the submodules that are gathered separately.
        writeback : bool
            Keep values that are written in the context; they must be the same on all ranks.
        rank0_only, offload_to_cpu, with_grads
            False.

        Raises
        ------
        NotImplementedError
            If one of these is True.
        """
        if rank0_only or offload_to_cpu or with_grads:
            _refuse("summon_full_params with rank0_only, offload_to_cpu or with_grads", "leave out")
        groups = _groups_of(module, recurse)
        with no_grad():
            for group in groups:
                group.unshard()
        try:
            yield
        finally:
            for group in groups:
                if writeback:
                    with no_grad():
                        for own, value in zip(group.parameters, group.seen(), strict=True):
                            own.copy_(value.detach())
                group.reshard()

    # --- gradients ----------------------------------------------------------------------------

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """`nn.utils.clip_grad_norm_` of all parameters; all ranks call it."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, whole gradients add up on each rank; the next backward outside averages them."""
        groups = _groups_of(self, True)
        before = [group.syncs for group in groups]
        for group in groups:
            group.syncs = False
        try:
            yield
        finally:
            for group, syncs in zip(groups, before, strict=True):
                group.syncs = syncs


def _groups_of(module: Module, recurse: bool) -> list[Any]:
    outer = module.module if isinstance(module, FullyShardedDataParallel) else module
    modules = outer.modules() if recurse else [outer]
    return list({id(m): m._fsdp_group for m in modules if isinstance(m, FSDPModule)}.values())


def _policy(mixed: MixedPrecision, root: bool) -> MixedPrecisionPolicy:
    casts = mixed.cast_forward_inputs or (root and mixed.cast_root_forward_inputs)
    return MixedPrecisionPolicy(mixed.param_dtype, mixed.reduce_dtype, None, casts)


def _refuse(what: str, instead: str) -> None:
    raise NotImplementedError(f"FullyShardedDataParallel: no {what}; {instead}")


def _broadcast(module: Module, ignored: set[Any], mesh: DeviceMesh | None) -> None:
    """Give all ranks the first one's values."""
    groups = [None] if mesh is None else mesh.get_all_groups()
    tensors = [p for p in module.parameters() if p not in ignored] + list(module.buffers())
    with no_grad():
        for group in reversed(groups):
            for tensor in tensors:
                if not hasattr(tensor, "sharding"):
                    dist.broadcast(tensor.detach(), group=group, group_src=0)


class ShardedGradScaler(GradScaler):
    """A `GradScaler`, which skips a step on all ranks where one of them found an infinity.

    Parameters
    ----------
    device, init_scale, backoff_factor, growth_factor, growth_interval, enabled
        See `GradScaler`.
    process_group : ProcessGroup, optional
        Accepted and ignored: the parameters know who shares their rows.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
