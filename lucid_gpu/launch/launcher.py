"""What a launcher does: compile, pack, start. Its two kinds are CuPy's and the host's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import room
from lucid_gpu.launch.arguments import Arguments, Packing

Extent = tuple[int, int, int]  # of a grid or a block: x, y, z

_launchers: dict[device, Launcher] = {}


class Launcher:
    """Where kernels run: one for each device."""

    device: device
    processors: int  # multiprocessors
    cache: int  # bytes of the cache that all of them share

    def launch(
        self,
        function: Any,
        packing: Packing,
        values: Sequence[Any],
        grid: Extent,
        block: Extent,
        shared: int = 0,
    ) -> None:
        """Start a compiled kernel on the values of a packing's fields.

        The calling thread is at home (see `at_home`).
        """
        try:
            arguments = packing.spare.pop()
        except IndexError:
            arguments = Arguments(packing)
        self.start(function, grid, block, shared, arguments.fill(values))
        packing.spare.append(arguments)

    def is_home(self) -> bool:
        """Whether this thread can compile and start kernels without `at_home`."""
        raise NotImplementedError

    def at_home(self) -> AbstractContextManager[None]:
        """Where kernels are compiled and started: with the device current."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        """Where an array's first element lies."""
        raise NotImplementedError

    def compile(self, name: str, source: str, cooperative: bool) -> Any:
        """Compile a kernel, or find it compiled.

        ``source`` may include files of `kernels/`; ``cooperative`` says whether threads of a block
        wait for each other.
        """
        raise NotImplementedError

    def start(self, function: Any, grid: Extent, block: Extent, shared: int, table: int) -> None:
        """Run a compiled kernel on the arguments a table points to."""
        raise NotImplementedError


def launcher_of(where: device) -> Launcher:
    """The launcher of a device; a cuda device without a number means the current one."""
    found = _launchers.get(where)
    if found is None:
        if where.type == "cpu":
            from lucid_gpu.launch.host import HostLauncher

            found = _launchers[where] = HostLauncher()
        elif where.index is None:
            return launcher_of(device("cuda", room(where).current_index()))
        else:
            from lucid_gpu.launch.cuda import CudaLauncher

            found = _launchers[where] = CudaLauncher(where)
    return found
