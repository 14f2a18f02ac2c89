"""One kernel with its parameters' types known: arguments checked, packed, started, reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend_of_array
from lucid_gpu.launch.arguments import Packing
from lucid_gpu.launch.launcher import Extent, Launcher
from lucid_gpu.launch.launchers import launcher_of
from lucid_gpu.launch.observers import Launched, Operand, debug, observed, observers
from lucid_gpu.launch.signature import Parameter
from lucid_gpu.launch.source import is_cooperative
from lucid_gpu.launch.taking import form_of, taker

_gpus: dict[int, device] = {}
_on_host: dict[type, bool] = {}  # whether arrays of a class are NumPy's


def extent(sizes: int | Sequence[int]) -> Extent:
    """A grid or a block as three numbers."""
    if isinstance(sizes, int):
        return (sizes, 1, 1)
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z)


def device_of(array: Any) -> device:
    """The device of a NumPy or CuPy array."""
    kind = type(array)
    host = _on_host.get(kind)
    if host is None:
        found = backend_of_array(array)
        if found is None:
            raise TypeError(f"a kernel takes NumPy or CuPy arrays; got a {kind.__name__}")
        host = _on_host[kind] = found.type == "cpu"
    if host:
        return CPU
    number = array.device.id
    return _gpus.get(number) or _gpus.setdefault(number, device("cuda", number))


class Function:
    """A kernel ready to be compiled where it is launched.

    Parameters
    ----------
    name : str
        Of the ``extern "C" __global__`` function.
    source : str
        CUDA C; it may include files of `kernels/`.
    parameters : sequence of Parameter
    threads : int
        The most threads a block may have.
    forms : mapping
        `struct`'s letters of parameters that are structures, by name.
    """

    def __init__(
        self,
        name: str,
        source: str,
        parameters: Sequence[Parameter],
        threads: int,
        forms: dict[str, str],
    ) -> None:
        self.name = name
        self.source = source
        self.parameters = parameters
        self.threads = threads
        self.packing = Packing([form_of(name, p, forms) for p in parameters])
        self.takers = [taker(name, p, forms.get(p.name)) for p in parameters]
        self.cooperative = is_cooperative(source)
        self._compiled: dict[Launcher, Any] = {}

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Any],
        shared: int = 0,
        reads: int | None = None,
        writes: int | None = None,
    ) -> None:
        """Start it; see `lucid_gpu.launch.Kernel`."""
        if len(arguments) != len(self.takers):
            names = ", ".join(p.name for p in self.parameters)
            raise TypeError(
                f"{self.name} takes {len(self.takers)} arguments ({names}); got {len(arguments)}"
            )
        launcher = self._launcher(arguments)
        values: list[Any] = []
        for argument, take in zip(arguments, self.takers):
            take(values, argument, launcher)
        self.check(grid, block)
        if 0 in grid:
            return
        if observers or debug:
            launched = self._launched(launcher, arguments, reads, writes)
            observed(launched, self._start, launcher, values, grid, block, shared)
        elif launcher.is_home():
            self._launch(launcher, values, grid, block, shared)
        else:
            self._start(launcher, values, grid, block, shared)

    def check_numbers(self, arguments: Sequence[Any]) -> None:
        """Refuse numbers that are not what their parameters declare."""
        launcher = launcher_of(CPU)
        for argument, parameter, take in zip(arguments, self.parameters, self.takers, strict=True):
            if not parameter.pointer:
                take([], argument, launcher)

    def prepare(self, where: device) -> None:
        """Compile it for a device, unless that is done."""
        launcher = launcher_of(where)
        if launcher not in self._compiled:
            with launcher.at_home():
                self._compiled[launcher] = launcher.compile(
                    self.name, self.source, self.cooperative
                )

    def check(self, grid: Extent, block: Extent) -> None:
        """Refuse what no GPU launches, and blocks larger than the kernel is compiled for."""
        threads = block[0] * block[1] * block[2]
        if not 0 < threads <= self.threads:
            raise ValueError(
                f"{self.name} takes blocks of 1 to {self.threads} threads; got {block}"
            )
        if grid[1] > 65535 or grid[2] > 65535 or min(grid) < 0:
            raise ValueError(
                f"{self.name}: a grid's sizes are not negative, and y and z at most 65535; got "
                f"{grid}"
            )

    def _launcher(self, arguments: Sequence[Any]) -> Launcher:
        for argument, parameter in zip(arguments, self.parameters):
            if parameter.pointer and argument is not None:
                return launcher_of(device_of(argument))
        raise TypeError(f"{self.name} was given no array, so it does not know where to run")

    def _start(
        self, launcher: Launcher, values: list[Any], grid: Extent, block: Extent, shared: int
    ) -> None:
        with launcher.at_home():
            self._launch(launcher, values, grid, block, shared)

    def _launch(
        self, launcher: Launcher, values: list[Any], grid: Extent, block: Extent, shared: int
    ) -> None:
        function = self._compiled.get(launcher)
        if function is None:
            function = launcher.compile(self.name, self.source, self.cooperative)
            self._compiled[launcher] = function
        launcher.launch(function, self.packing, values, grid, block, shared)

    def _launched(
        self, launcher: Launcher, arguments: Sequence[Any], reads: int | None, writes: int | None
    ) -> Launched:
        loads: dict[int, Any] = {}
        stores: dict[int, Any] = {}
        for argument, parameter in zip(arguments, self.parameters, strict=True):
            if parameter.pointer and argument is not None:
                (loads if parameter.const else stores)[id(argument)] = argument
        written = [_operand(a) for a in stores.values()]
        launched = Launched(
            self.name,
            launcher.device,
            written[0].shape if written else (),
            tuple([_operand(a) for a in loads.values()]),
            tuple(written),
            sum([a.nbytes for a in loads.values()]) if reads is None else reads,
            sum([a.nbytes for a in stores.values()]) if writes is None else writes,
            self.source,
        )
        if debug:
            print(
                f"kernel {launched.name} on {launched.device}: shape {list(launched.shape)}, reads "
                f"{launched.bytes_read} bytes, writes {launched.bytes_written} bytes\n{self.source}"
            )
        return launched


def _operand(array: Any) -> Operand:
    return Operand(array.dtype, array.shape)
