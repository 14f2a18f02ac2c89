"""A hand-written kernel: a device function template of `kernels/`, launched by instance.

`Kernel` names the template, a `Function` is one instance: its arguments are checked, packed and
handed to the launcher of the arrays' device.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucid_gpu.device import CPU, device
from lucid_gpu.devices import device_of
from lucid_gpu.dtypes import dtype
from lucid_gpu.launch.arguments import Arguments, Packing
from lucid_gpu.launch.launcher import Extent, Launcher, Start
from lucid_gpu.launch.launchers import launcher_of
from lucid_gpu.launch.observers import Launched, Operand, debug, observed, observers
from lucid_gpu.launch.signature import Parameter, parameters, substituted
from lucid_gpu.launch.source import c_type, is_cooperative
from lucid_gpu.launch.taking import element_type, exact_types, form_of, is_plain, taker

Form = str | Callable[..., str]
LONGEST = 65535  # blocks of a grid in its second and third dimension


def extent(sizes: int | Sequence[int]) -> Extent:
    """A grid or a block as three numbers."""
    if isinstance(sizes, int):
        return (sizes, 1, 1)
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z)


class Kernel:
    """A device function of `kernels/`, as a kernel.

    Parameters
    ----------
    source : str
        The file, such as ``"softmax.cu"``, or a text of several lines.
    name : str
        The device function: ``LUCID_FN void name(...)``, perhaps a template.
    declaration : str
        Its parameters as C writes them. ``const T*`` is read, ``T*`` is written.
    template : str
        Its template parameters, such as ``"T, WIDTH"``.
    threads : int
        The most threads a block has, and how many it has unless a launch says otherwise.
    forms : mapping, optional
        For parameters that are structures: their fields and padding in `struct`'s letters, or a
        function that gives them for the template's values. Their arguments are sequences of
        numbers, or the bytes of the structure.
    blocks : int, optional
        How many blocks a multiprocessor shall hold at least: the compiler gives a thread as many
        registers as that leaves. By default it chooses, and may rather spill than hold fewer.

    Examples
    --------
    >>> softmax_rows = Kernel(
    ...     "softmax.cu", "softmax_rows", "const T* x, T* y, int columns", template="T"
    ... )
    >>> softmax_rows(rows, (x, y, columns), T=float32)
    """

    def __init__(
        self,
        source: str,
        name: str,
        declaration: str,
        template: str = "",
        threads: int = 256,
        forms: Mapping[str, Form] | None = None,
        blocks: int | None = None,
    ) -> None:
        self.text = source if "\n" in source else f'#include "{source}"\n'
        self.name = name
        self.declaration = declaration
        self.template = tuple(template.replace(",", " ").split())
        self.threads = threads
        self.bounds = f"{threads}" if blocks is None else f"{threads}, {blocks}"
        self.forms = dict(forms or {})
        self.parameters = parameters(declaration)
        self._functions: dict[Any, Function] = {}

    def __call__(
        self,
        grid: int | Sequence[int],
        arguments: Sequence[Any],
        *,
        threads: int | Sequence[int] | None = None,
        shared: int = 0,
        reads: int | None = None,
        writes: int | None = None,
        **template: Any,
    ) -> None:
        """Launch an instance where the arrays live.

        Parameters
        ----------
        grid : int or sequence of int
            Blocks; with none of them nothing is launched.
        arguments : sequence
            Arrays for pointers (row-major, unless strides go with them; None is a null pointer) and
            numbers, which are packed as the type they are declared with.
        threads : int or sequence of int, optional
            Of a block.
        shared : int
            Bytes of dynamic shared memory of a block.
        reads, writes : int, optional
            Bytes moved, for the profiler; by default the arrays' sizes.
        **template
            Element types for type parameters, numbers for the others.

        Raises
        ------
        TypeError, OverflowError
            For an argument that is not what its parameter declares; nothing is launched.
        RuntimeError
            If the source does not compile or the launch fails.
        """
        function = self._functions.get(tuple(template.items()))
        if function is None:
            function = self.instance(**template)
        if threads is None:
            threads = self.threads
        function(
            (grid, 1, 1) if type(grid) is int else extent(grid),
            (threads, 1, 1) if type(threads) is int else extent(threads),
            arguments,
            shared,
            reads,
            writes,
        )

    def instance(self, **template: Any) -> Function:
        """The kernel for some template arguments, not yet compiled."""
        key = tuple(template.items())
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._instance(template)
        return function

    def _instance(self, template: dict[str, Any]) -> Function:
        if set(template) != set(self.template):
            raise TypeError(
                f"the template arguments of {self.name} are ({', '.join(self.template)}); got "
                f"({', '.join(template)})"
            )
        names = [template[n].name for n in self.template if isinstance(template[n], dtype)]
        name = "_".join(["lucid", self.name, *names])
        values = {n: _text(template[n]) for n in self.template}
        forms = {n: f(**template) if callable(f) else f for n, f in self.forms.items()}
        bound = [p.bound(values) for p in self.parameters]
        return Function(name, self._source(name, values), bound, self.threads, forms)

    def _source(self, name: str, values: Mapping[str, str]) -> str:
        template_arguments = f"<{', '.join(values.values())}>" if values else ""
        return (
            f"{self.text}\n"
            f'extern "C" __global__ void __launch_bounds__({self.bounds})\n'
            f"{name}({substituted(self.declaration, values)})\n"
            "{\n"
            f"    {self.name}{template_arguments}({', '.join(p.name for p in self.parameters)});\n"
            "}\n"
        )


def _text(value: Any) -> str:
    """A template argument in C."""
    if isinstance(value, dtype):
        return c_type(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        self.letters = [form_of(name, p, forms) for p in parameters]
        self.packing = Packing(self.letters)
        self.takers = [taker(name, p, forms.get(p.name)) for p in parameters]
        self.count = len(self.takers)
        by_value = [(i, forms.get(p.name)) for i, p in enumerate(parameters) if not p.pointer]
        self.structures = [
            (i, struct.Struct("=" + form).unpack) for i, form in reversed(by_value) if form
        ]
        structures = [i for i, _ in self.structures]
        self.plain = all(i in structures or is_plain(p) for i, p in enumerate(parameters))
        self.pointers = [(i, element_type(p)) for i, p in enumerate(parameters) if p.pointer]
        self.first = self.pointers[0][0] if self.pointers else 0
        self.exact = [
            (i, kinds) for i, p in enumerate(parameters) if (kinds := exact_types(p)) is not None
        ]
        self.cooperative = is_cooperative(source)
        self._compiled: dict[Launcher, Any] = {}
        self._latest: tuple[Any, Any] = None, None  # the launcher used last, what it compiled

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
        if len(arguments) != self.count:
            names = ", ".join(p.name for p in self.parameters)
            raise TypeError(
                f"{self.name} takes {len(self.takers)} arguments ({names}); got {len(arguments)}"
            )
        launcher, function = self._latest
        if (
            launcher is None
            or type(array := arguments[self.first]) is not launcher.kind
            or not (launcher.only or array.data.device_id == launcher.index)
        ):
            launcher = self._launcher(arguments)
            function = self._compiled.get(launcher)
            if function is not None:
                self._latest = launcher, function
        packed = self._packed(arguments, launcher)
        (x, y, z), (width, height, depth) = grid, block
        sound = 0 < width * height * depth <= self.threads and x > 0
        if not (sound and 0 < y <= LONGEST and 0 < z <= LONGEST):
            self.check(grid, block)
            if 0 in grid:
                return
        if observers or debug:
            launched = self._launched(launcher, arguments, reads, writes)
            observed(launched, self._start, launcher, packed, grid, block, shared)
        elif launcher.is_home():
            if function is None:
                function = self._compile(launcher)
            launcher.launch(function, packed, grid, block, shared)
        else:
            self._start(launcher, packed, grid, block, shared)

    def _packed(self, arguments: Sequence[Any], launcher: Launcher) -> Arguments:
        """The arguments of a launch.

        `struct` refuses most of what is wrong; then the takers look again and say what it is.
        """
        if self.plain:
            values, address = list(arguments), launcher.address
            try:
                for i, element in self.pointers:
                    argument = values[i]
                    if argument is None:
                        values[i] = 0
                        continue
                    kind = argument.dtype
                    if kind is not element and kind != element:
                        raise TypeError
                    values[i] = address(argument)
                for i, kinds in self.exact:
                    if type(values[i]) not in kinds:
                        raise TypeError
                for i, unpack in self.structures:  # the last first: each becomes several fields
                    values[i : i + 1] = unpack(values[i])
                return self.packing.filled(values)
            except (AttributeError, TypeError, OverflowError, struct.error):
                pass
        values = []
        for argument, take in zip(arguments, self.takers, strict=True):
            take(values, argument, launcher)
        return self.packing.filled(values)

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
                self._compile(launcher)

    def compiled_for(self, launcher: Launcher) -> Any:
        """What it is compiled to for a device, None before it was launched there."""
        return self._compiled.get(launcher)

    def check(self, grid: Extent, block: Extent) -> None:
        """Refuse what no GPU launches, and blocks larger than the kernel is compiled for."""
        threads = block[0] * block[1] * block[2]
        if not 0 < threads <= self.threads:
            raise ValueError(
                f"{self.name} takes blocks of 1 to {self.threads} threads; got {block}"
            )
        if grid[1] > LONGEST or grid[2] > LONGEST or min(grid) < 0:
            raise ValueError(
                f"{self.name}: a grid's sizes are not negative, and y and z at most {LONGEST}; got "
                f"{grid}"
            )

    def _launcher(self, arguments: Sequence[Any]) -> Launcher:
        for i, _ in self.pointers:
            array = arguments[i]
            if array is not None:
                return launcher_of(device_of(array))
        raise TypeError(f"{self.name} was given no array, so it does not know where to run")

    def _start(
        self, launcher: Launcher, packed: Arguments, grid: Extent, block: Extent, shared: int
    ) -> None:
        with launcher.at_home():
            function = self._compiled.get(launcher) or self._compile(launcher)
            launcher.launch(function, packed, grid, block, shared)

    def _compile(self, launcher: Launcher) -> Any:
        function = launcher.compile(self.name, self.source, self.cooperative)
        self._compiled[launcher] = function
        return function

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


class Launch:
    """A function on certain blocks of a device, for arguments of which all but values is known.

    It is what a family of kernels decides once, for types, shapes and alignment of its arrays:
    these are not looked at again.

    Parameters
    ----------
    function : Function
        Its parameters that are pointers come first.
    where : device
    grid, block : tuple of int
    shared : int
        Bytes of dynamic shared memory of a block.
    structure : bytes, optional
        The last argument, if it is a structure that never changes.
    """

    __slots__ = ("_start", "block", "function", "grid", "last", "launcher", "packing", "shared")

    def __init__(
        self,
        function: Function,
        where: device,
        grid: Extent,
        block: Extent,
        shared: int = 0,
        structure: bytes | None = None,
    ) -> None:
        function.check(grid, block)
        self.function, self.packing = function, function.packing
        self.last: tuple[bytes, ...] = ()
        if structure is not None:
            *varying, letters = function.letters
            fields = struct.unpack("=" + letters, structure)
            self.packing, self.last = Packing(varying, [(letters, fields)]), (structure,)
        self.grid, self.block, self.shared = grid, block, shared
        self.launcher = launcher_of(where)
        self._start: Start | None = None

    def __call__(self, arrays: Sequence[Any], addresses: Sequence[int], *numbers: Any) -> None:
        """Start it; the device is the current one.

        Parameters
        ----------
        arrays : sequence
            For the pointers; None is a null pointer.
        addresses : sequence of int
            Where they lie.
        *numbers : bool, int or float
            For the other parameters.
        """
        start = self._start
        if start is not None and not (observers or debug) and start((*addresses, *numbers)):
            return
        self.function(self.grid, self.block, (*arrays, *numbers, *self.last), self.shared)
        if start is None:
            compiled = self.function.compiled_for(self.launcher)
            of = self.packing, self.grid, self.block, self.shared
            self._start = self.launcher.bound(compiled, *of)


def _operand(array: Any) -> Operand:
    return Operand(array.dtype, array.shape)
