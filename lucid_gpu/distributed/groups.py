"""Groups of ranks: the default one, those made of it, and who is which rank."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from lucid_gpu.device import CPU, device
from lucid_gpu.distributed import rendezvous
from lucid_gpu.distributed.engines import Collectives, Engine, mpi, nccl
from lucid_gpu.distributed.engines.nccl import NCCLEngine
from lucid_gpu.distributed.engines.one import OneEngine
from lucid_gpu.distributed.store import HashStore, PrefixStore, Store
from lucid_gpu.distributed.watch import Call

default_pg_timeout = timedelta(minutes=30)
default_pg_nccl_timeout = timedelta(minutes=10)
UNSET = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)


class Backend(str):
    """The name of an engine in lower case: ``"gloo"`` and ``"mpi"`` are MPI, ``"nccl"`` NCCL."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL, MPI]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: Any) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


def _check_backend(backend: str | None) -> str:
    """The name of the group's backend; "cpu:gloo,cuda:nccl" is one too."""
    if backend is None:
        return Backend.UNDEFINED
    name = backend.lower()
    for part in name.split(","):
        known = part.split(":")[-1]
        if known not in (Backend.GLOO, Backend.NCCL, Backend.MPI):
            raise AssertionError(f"Unknown backend type {known}")
    return name


def _moves_by_nccl(backend: str) -> bool:
    """Whether a group of some backend sends tensors on a GPU by NCCL, not by way of the host."""
    if backend == Backend.UNDEFINED:
        return is_nccl_available()
    return any(part in (Backend.NCCL, "cuda:nccl") for part in backend.split(","))


class ProcessGroup:
    """Ranks that take part in collectives together.

    Attributes
    ----------
    engine : Engine
        What moves arrays of the host.
    nccl : NCCLEngine or None
        What moves arrays of GPUs, once a tensor needed it.
    ranks : list of int
        Their ranks in the default group.
    group_name, group_desc : str
    timeout : timedelta
    store : Store
    """

    def __init__(
        self,
        engine: Engine,
        ranks: list[int],
        backend: str,
        group_name: str,
        timeout: timedelta,
        store: Store,
        group_desc: str = "undefined",
    ) -> None:
        self.engine, self.ranks, self.backend = engine, ranks, backend
        self.group_name, self.group_desc = group_name, group_desc
        self.timeout, self.store = timeout, store
        self.under_way: list[Any] = []  # work that nobody may wait for
        self.nccl: NCCLEngine | None = None  # made when a tensor on a GPU first needs it
        self._calls = 0

    def rank(self) -> int:
        """This process's rank in the group."""
        return self.engine.rank

    def size(self) -> int:
        """How many ranks there are."""
        return self.engine.size

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def engine_of(self, where: device) -> tuple[Collectives, device]:
        """What moves the tensors of a device, and the device whose memory it takes."""
        if where.type == "cpu" or self.engine.name == "one":
            return self.engine, where
        if not _moves_by_nccl(self.backend):
            return self.engine, CPU
        if self.nccl is None:
            self.nccl = NCCLEngine(self.engine, self.ranks, self.timeout)
        return self.nccl, where

    def progress(self) -> None:
        """Forget work that is done, and let other work go on."""
        if self.under_way:
            self.under_way = [work for work in self.under_way if not work.settled()]

    def call(
        self,
        what: str,
        tensor: Any = None,
        op: Any = None,
        root: int | None = None,
        size: int | None = None,
    ) -> Call:
        """The next collective as errors name it; a tensor is of as many elements on all ranks."""
        self._calls += 1
        kind, shape = ("", ()) if tensor is None else (tensor.dtype.name, tuple(tensor.shape))
        call = Call(what, kind, shape, size, op, root, self.ranks)
        call.number = f"call {self._calls} of group {self.group_name}"
        return call

    def close(self) -> None:
        """Wait for what is under way, and let go of the engine."""
        for work in self.under_way:
            work.wait(self.timeout)
        self.under_way = []
        if self.nccl is not None:
            self.nccl.close()
        self.engine.close()


class _World:
    default: ProcessGroup | None = None
    groups: list[ProcessGroup] = []  # made by new_group, living
    made = 0  # groups so far in this default group
    inits = 0


class _Group(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, None before `init_process_group`."""
        return _World.default

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        _World.default = value


class group(metaclass=_Group):
    """``group.WORLD`` is the default group."""


class GroupMember(metaclass=_Group):
    """What stands for a group: ``WORLD``, the default one, and one this process is not in."""

    NON_GROUP_MEMBER = -100


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Find the other ranks and make the default group.

    Parameters
    ----------
    backend : str, optional
        ``"gloo"`` or ``"mpi"``: MPI, by way of the host for tensors on a GPU. ``"nccl"`` and
        ``"cpu:gloo,cuda:nccl"``: NCCL for tensors on a GPU, MPI for those on the CPU. The default
        is the latter if NCCL is available, else ``"gloo"``. A single rank needs no library.
    init_method : str, optional
        ``"env://"`` (default), ``"tcp://host:port"`` or ``"file:///path"``. Under ``mpiexec`` MPI
        itself knows the ranks.
    timeout : timedelta, optional
        Of every operation; 30 minutes by default, 10 with ``"nccl"``.
    world_size, rank : int, optional
    store : Store, optional
        Instead of ``init_method``.
    group_name, pg_options, device_id
        Accepted and ignored.

    Raises
    ------
    ValueError
        If the ranks are not known, or there is a default group already.
    RuntimeError
        If MPI is missing, or NCCL for ``"nccl"``.
    TypeError
        For a ``timeout`` that is not a timedelta.
    AssertionError
        For an unknown backend.
    """
    if _World.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = _check_backend(backend)
    if timeout is None:
        timeout = default_pg_nccl_timeout if name == Backend.NCCL else default_pg_timeout
    limit = timeout
    if not isinstance(limit, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}"
        )
    if store is not None:
        assert init_method is None, "Cannot specify both init_method and store."
        assert world_size > 0, "world_size must be positive if using store"
        assert rank >= 0, "rank must be non-negative if using store"
        info = rendezvous.RendezvousInfo(rank, world_size, store)
    else:
        info = rendezvous.find(name, init_method, rank, world_size, limit)
    engine: Engine = OneEngine()
    if info.size > 1:
        if name == Backend.NCCL:
            nccl.require()
        connecting = None
        if mpi.launched_size() == 1:
            connecting = rendezvous.connect(info, limit)
            info.store = connecting
        engine = mpi.world(info.rank, info.size, connecting, limit)
    _World.inits += 1
    shared = PrefixStore(f"init/{_World.inits}", info.store or HashStore())
    everyone = list(range(info.size))
    _World.default = ProcessGroup(engine, everyone, name, "0", limit, shared, "default_pg")
    _World.made = 1


def destroy_process_group(group: Any = None) -> None:
    """End a group, by default all of them.

    Raises
    ------
    ValueError
        For a group that has been destroyed.
    """
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    assert group is not None or _World.default is not None, "Process group cannot be None"
    if group is not None and group is not _World.default:
        if group not in _World.groups:
            raise ValueError("Invalid process group specified or has been destroyed.")
        _World.groups.remove(group)
        group.close()
        return
    assert _World.default is not None
    ending, _World.groups = [*_World.groups, _World.default], []
    _World.default = None
    for one in ending:
        one.close()


def is_initialized() -> bool:
    """Whether there is a default group."""
    return _World.default is not None


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return mpi.is_installed()


def is_gloo_available() -> bool:
    """Whether tensors on the CPU can be sent; lucid_gpu sends them by MPI under this name."""
    return mpi.is_installed()


def is_nccl_available() -> bool:
    """Whether CuPy finds NCCL's library and a GPU."""
    return nccl.problem() is None


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether several processes can use a backend."""
    if backend.lower() == Backend.NCCL:
        return is_nccl_available()
    return backend.lower() in (Backend.GLOO, Backend.MPI) and mpi.is_installed()


def is_torchelastic_launched() -> bool:
    """Whether ``python -m lucid_gpu.distributed.run`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def resolved(group: Any, name: str = "") -> ProcessGroup | None:
    """The group an operation is for; None, with a warning, where this process is not in it."""
    if group is None:
        if _World.default is None:
            raise ValueError(UNSET)
        return _World.default
    if isinstance(group, ProcessGroup):
        return group
    if group == GroupMember.NON_GROUP_MEMBER:
        if name:
            warnings.warn(
                f"Running {name} on global rank {get_rank()} which does not belong to the given "
                "group.",
                stacklevel=3,
            )
        return None
    raise TypeError(f"group must be a ProcessGroup or None, got {group!r}")


def get_rank(group: Any = None) -> int:
    """The rank of this process in a group, or -1 if it is not a member."""
    pg = resolved(group)
    return -1 if pg is None else pg.rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks a group has, -1 where this process is not in it."""
    pg = resolved(group)
    return -1 if pg is None else pg.size()


def get_backend(group: Any = None) -> Backend:
    """The name of the backend of a group, by default of the default group.

    Raises
    ------
    ValueError
        If this process is not in the group.
    """
    pg = resolved(group)
    if pg is None:
        raise ValueError("Invalid process group specified")
    return Backend(pg.backend)


def get_backend_config(group: Any = None) -> str:
    """The backend of each type of device."""
    name = get_backend(group)
    if ":" in name:
        return str(name)
    if name == Backend.UNDEFINED:
        return "cpu:gloo,cuda:nccl"
    return f"cpu:{name},cuda:{name}"


def get_default_backend_for_device(device: Any) -> str:
    """The backend for a device, such as ``"gloo"`` for ``"cpu"``.

    Raises
    ------
    ValueError
        For an unknown type of device.
    """
    kind = str(getattr(device, "type", device)).split(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks of a group's members in the default group."""
    pg = resolved(group)
    return [] if pg is None else list(pg.ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """Convert a rank of a group to a rank of the default group.

    Raises
    ------
    ValueError
        For a rank that is not in the group.
    """
    pg = resolved(group)
    if pg is None or not 0 <= group_rank < pg.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return pg.ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """Convert a rank of the default group to a rank of a group.

    Raises
    ------
    ValueError
        For a rank that is not in the group.
    """
    pg = resolved(group)
    if pg is None or global_rank not in pg.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return pg.ranks.index(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank of this process on its machine, from the environment variables of the launcher.

    Raises
    ------
    RuntimeError
        If no variable is set, and no ``fallback_rank`` is given.
    """
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context and "
        "want the code to run locally instead."
    )


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_World.groups) + (_World.default is not None)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Make a group of some ranks; all ranks of the default group must call this, in the same order.

    Parameters
    ----------
    ranks : sequence of int, optional
        All by default.
    timeout : timedelta, optional
        The default group's by default.
    backend : str, optional
    pg_options, use_local_synchronization, device_id
        Accepted and ignored: only members take part in making it.
    group_desc : str, optional
    sort_ranks : bool
        Ranks in the group follow those in the default group; else the order of ``ranks``.

    Returns
    -------
    ProcessGroup or int
        ``GroupMember.NON_GROUP_MEMBER`` if this process is not in it.

    Raises
    ------
    ValueError
        For ranks that do not exist or occur twice, and for no ranks.
    AssertionError
        For an unknown backend.
    """
    world = resolved(None)
    assert world is not None
    members = list(world.ranks) if ranks is None else [int(rank) for rank in ranks]
    for rank in members:
        if rank not in world.ranks:
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {world.size() - 1} "
                f"(world_size={world.size()})"
            )
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    if not members:
        raise ValueError("new_group: ranks is empty")
    if sort_ranks:
        members.sort()
    name = str(_World.made)
    _World.made += 1
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    made = ProcessGroup(
        world.engine.split(members, world.timeout if timeout is None else timeout),
        members,
        world.backend if backend is None else _check_backend(backend),
        name,
        world.timeout if timeout is None else timeout,
        PrefixStore(f"group/{name}", world.store),
        group_desc or "undefined",
    )
    _World.groups.append(made)
    return made


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Divide a group into groups of ``group_size`` consecutive ranks.

    Returns
    -------
    tuple of ProcessGroup and list of ProcessGroup
        The group of this process, and all groups.

    Raises
    ------
    ValueError
        For a ``group_size`` that is missing, not positive, or does not divide the number of ranks.
    """
    whole = resolved(group)
    assert whole is not None
    if group_size is None:
        raise ValueError("new_subgroups: group_size is needed")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if whole.size() < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({whole.size()})"
        )
    if whole.size() % group_size:
        raise ValueError(
            f"The world size ({whole.size()}) must be divisible by 'group_size={group_size}'"
        )
    starts = range(0, whole.size(), group_size)
    parts = [whole.ranks[start : start + group_size] for start in starts]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Make one group for each list of ranks.

    Returns
    -------
    tuple of ProcessGroup and list of ProcessGroup
        The group of this process, and all groups.

    Raises
    ------
    ValueError
        For no lists, and a rank that occurs twice.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    for rank in every:
        if every.count(rank) > 1:
            raise ValueError(f"Rank {rank} has appeared in both subgroups")
    made = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        for ranks in ranks_per_subgroup_list
    ]
    mine = [one for one in made if one != GroupMember.NON_GROUP_MEMBER]
    return (mine[0] if mine else None), made
