"""What a launcher does: compile and launch. Its two kinds are CuPy's and the host's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from lucid_gpu.device import device
from lucid_gpu.launch import compiling
from lucid_gpu.launch.arguments import Arguments, Packing
from lucid_gpu.launch.compiling import Text

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lucid_gpu.devices.port import Backend

Start = Callable[[Sequence[Any]], bool]
Extent = tuple[int, int, int]  # of a grid or a block: x, y, z


class Launcher:
    """Where kernels run: one for each device."""

    device: device
    backend: Backend  # of the arrays it takes
    kind: type  # those arrays' class
    only: bool  # whether all arrays of this class are on its device
    index: int | None  # else theirs is this one
    address: Callable[[Any], int]  # the backend's
    empty: Callable[[Sequence[int], Any], Any]  # (shape, NumPy's type), of a thread at home
    processors: int  # multiprocessors
    cache: int  # bytes of the cache that all of them share
    mode: str  # of compiling, where LUCID_COMPILE does not say
    kernels: dict[Text, Future[Any]]  # compiled, or on the way; see lucid_gpu.launch.compiling
    met: dict[Text, int]  # how often kernels were asked for in vain
    slow = 0  # how many ops' kernels, one after the other up to now, took long to come

    def launch(
        self,
        function: Any,
        arguments: Arguments,
        grid: Extent,
        block: Extent,
        shared: int = 0,
    ) -> None:
        """Start a compiled kernel on packed arguments, which go back to their packing.

        The calling thread is at home (see `at_home`).
        """
        raise NotImplementedError

    def bound(
        self, function: Any, packing: Packing, grid: Extent, block: Extent, shared: int = 0
    ) -> Start | None:
        """What starts a compiled kernel by one call of C, which `launch` does in several.

        It is called with the numbers that are packed, by a thread at home, and gives False where it
        has started nothing. None where Python has to start it.
        """
        return None

    def counters(self) -> Any:
        """Numbers at 0, for blocks that count which of them ends last, as an array.

        They are for one launch, by a thread at home, which leaves them at 0.
        """
        raise NotImplementedError

    def is_home(self) -> bool:
        """Whether this thread can compile and start kernels without `at_home`."""
        raise NotImplementedError

    def at_home(self) -> AbstractContextManager[None]:
        """Where kernels are compiled and started: with the device current."""
        raise NotImplementedError

    def compile(self, name: str, source: str, cooperative: bool) -> Any:
        """Compile a kernel, or find it compiled.

        ``source`` may include files of `kernels/`; ``cooperative`` says whether threads of a block
        wait for each other.
        """
        return compiling.compiled(self, Text(name, source, cooperative))

    def meet(self, text: Text) -> int:
        """How often a kernel that is not compiled has been asked for, this time included."""
        times = self.met[text] = self.met.get(text, 0) + 1
        return times

    def build(self, text: Text) -> Any:
        """Compile a kernel; called by `lucid_gpu.launch.compiling` alone, on any thread at home."""
        raise NotImplementedError
