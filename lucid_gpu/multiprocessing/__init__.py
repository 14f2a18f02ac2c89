"""Python's `multiprocessing`, whose queues, pipes and pools hand shared tensors over as such.

What is imported here is Python's. Importing it says how tensors travel: of one in memory that other
processes see (`Tensor.share_memory_`) the file's descriptor is sent, and a write on either side is
seen on the other. All others travel by value, so that the sender may end at once.

Examples
--------
>>> from lucid_gpu import multiprocessing as mp
>>> queue = mp.get_context("spawn").Queue()
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing import connection, reduction
from typing import Any

from lucid_gpu.nn.parameter import Buffer, Parameter
from lucid_gpu.ops import shared_memory
from lucid_gpu.ops.borrowed import from_array_shared
from lucid_gpu.tape.overrides import fields, user_attributes
from lucid_gpu.tensor import Tensor

__all__ = [
    *multiprocessing.__all__,
    *("ProcessContext", "ProcessRaisedException", "get_all_sharing_strategies"),
    *("get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes"),
]


def _reduced(tensor: Tensor) -> Any:
    """How a tensor is put on its way to another process."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    if tensor._is_sparse or tensor.device.type != "cpu" or not tensor.is_shared():
        return tensor.__reduce_ex__(2)
    descriptor, layout = shared_memory.parts_of(tensor)
    state = user_attributes(fields(tensor))
    return _arrived, (
        *(type(tensor), reduction.DupFd(descriptor), layout, tensor.requires_grad, state),
    )


def _arrived(kind: Any, sent: Any, layout: Any, requires_grad: bool, state: Any) -> Tensor:
    made = from_array_shared(shared_memory.mapped(sent.detach(), *layout))
    if kind is Parameter:
        made = Parameter(made, requires_grad)
    elif kind is Buffer:
        made = Buffer(made)
    fields(made).update(state)
    return made._mark(requires_grad)


for _kind in (Tensor, Parameter, Buffer):
    reduction.ForkingPickler.register(_kind, _reduced)


class ProcessRaisedException(Exception):
    """A process started by `spawn` raised, or died.

    Attributes
    ----------
    error_index : int
        Which one.
    pid : int
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessContext:
    """Processes that `spawn` started.

    Attributes
    ----------
    processes : list of Process
    """

    def __init__(self, processes: list[Any], pipes: list[Any]) -> None:
        self.processes, self._pipes = processes, pipes

    def pids(self) -> list[int]:
        """Their numbers."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one has ended; True once all have.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; for ever by default.
        grace_period : float, optional
            Where one failed, seconds that the others have to end by themselves, and again after
            they were asked to, before they are killed; by default none, and then 30.

        Raises
        ------
        ProcessRaisedException
            If one raised or died; the others are ended.
        """
        running = [p.sentinel for p in self.processes if p.is_alive()]
        if running and not self._failed():  # one may have failed before anybody waited
            connection.wait(running, timeout)
        failed = self._failed()
        if not failed:
            return all(p.exitcode == 0 for p in self.processes)
        if grace_period is not None:
            self._wait(grace_period)
        for p in self.processes:
            p.terminate()
        self._wait(30.0 if grace_period is None else grace_period)
        for p in self.processes:
            p.kill()
            p.join()
        i, process = failed[0]
        what = f"Process {i} terminated with exit code {process.exitcode}"
        if self._pipes[i].poll():
            what = f"Process {i} terminated with the following error:\n{self._pipes[i].recv()}"
        raise ProcessRaisedException(f"\n\n-- {what}", i, process.pid)

    def _failed(self) -> list[tuple[int, Any]]:
        return [(i, p) for i, p in enumerate(self.processes) if p.exitcode not in (None, 0)]

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for p in self.processes:
            p.join(max(0.0, end - time.monotonic()))


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], tell: Any) -> None:
    try:
        fn(i, *args)
    except Exception:
        tell.send(traceback.format_exc())
        raise SystemExit(1) from None


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(i, *args)`` in ``nprocs`` processes.

    Parameters
    ----------
    fn : callable
        Of a module: processes import it.
    args : tuple
    nprocs : int
    join : bool
        Wait for all of them; otherwise a `ProcessContext` comes back, to be joined.
    daemon : bool
        Whether they end with this process.
    start_method : {"spawn", "fork", "forkserver"}

    Raises
    ------
    ProcessRaisedException
        If one raised or died.
    """
    here = multiprocessing.get_context(start_method)
    processes, pipes = [], []
    for i in range(nprocs):
        ours, theirs = here.Pipe(False)
        process = here.Process(  # type: ignore[attr-defined]
            target=_run, args=(fn, i, args, theirs), daemon=daemon
        )
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    context = ProcessContext(processes, pipes)
    if not join:
        return context
    while not context.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with new interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """How memory can be shared: by descriptors of files without names."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """How memory is shared."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose ``"file_descriptor"``; there is no other, and ValueError is raised for one."""
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(
            f"sharing strategy {new_strategy!r}: there is only 'file_descriptor', whose files have "
            "no names and need no room in /dev/shm"
        )
