"""What both executors of CUDA C share: a plan's kernels, their arguments, their order."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import partial_sums, reduction
from lucid_gpu.fusion.cuda_source import Kernel, Work, ragged, work_of
from lucid_gpu.fusion.layout import count
from lucid_gpu.fusion.plan import Plan

SLOT = 16  # bytes an argument has in the argument block: every type is aligned there

_LETTERS = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float32": "f",
    "float64": "d",
    "complex64": "ff",
    "complex128": "dd",
}


def number_fields(value: Any, d: dtype) -> tuple[Any, ...]:
    """A Python number as `struct` packs it: integers wrap, floats overflow to infinity."""
    if d.category == 0:
        return (bool(value),)
    if d.category == 1:
        bits = d.itemsize * 8
        value = int(value) & ((1 << bits) - 1)
        return (value - (1 << bits) if d.is_signed and value >> (bits - 1) else value,)
    real = ctypes.c_float if d.itemsize == 4 or d.name == "complex64" else ctypes.c_double
    if d.category == 2:
        return (real(value).value,)
    return (real(complex(value).real).value, real(complex(value).imag).value)


def _field(letters: str) -> str:
    """A `struct` format padded to whole slots."""
    size = struct.calcsize("=" + letters)
    return letters + "x" * (-size % SLOT)


class Arguments:
    """The memory a launch's arguments are read from, used by one launch at a time.

    ``table`` is the address of an array of pointers to the arguments, as cuLaunchKernel takes it.
    """

    def __init__(self, head: struct.Struct, fields: Sequence[str], tail: bytes) -> None:
        sizes = [struct.calcsize("=" + field) for field in fields]
        self.memory = ctypes.create_string_buffer(sum(sizes) + SLOT)
        base = ctypes.addressof(self.memory)
        self.start = -base % SLOT
        self.pack = head.pack_into
        ctypes.memmove(base + self.start + head.size, tail, len(tail))
        places, at = [], base + self.start
        for size in sizes:
            places.append(at)
            at += size
        self._places = (ctypes.c_void_p * len(places))(*places)
        self.table = ctypes.addressof(self._places)

    def fill(self, values: Sequence[Any]) -> int:
        self.pack(self.memory, self.start, *values)
        return self.table


class Launch:
    """One kernel of a plan, compiled, with its constant arguments in place."""

    def __init__(
        self,
        kernel: Kernel,
        work: Work,
        numbers: Sequence[Any],
        handle: Any,
        arrays: Sequence[str] | None = None,
    ) -> None:
        fields = [_field(form) for form in arrays or ["Q"] * len(kernel.aligned)]
        fields += [_field(_LETTERS[d.name]) for d in work.scalars]
        self.head = struct.Struct("=" + "".join(fields))
        tail = b""
        for value, d in zip(numbers, work.constants, strict=True):
            fields.append(_field(_LETTERS[d.name]))
            tail += struct.pack("=" + fields[-1], *number_fields(value, d))
        for size in kernel.sizes:
            fields.append(_field(size.form))
            tail += struct.pack("=" + fields[-1], *size.values)
        self.fields, self.tail = fields, tail
        self.kernel = kernel
        self.handle = handle
        self.spare: list[Arguments] = []

    def arguments(self) -> Arguments:
        """A free argument block; give it back to ``spare`` after the launch."""
        try:
            return self.spare.pop()
        except IndexError:
            return Arguments(self.head, self.fields, self.tail)


class CudaExecutable:
    """A plan ready to run as CUDA C. Subclasses say where memory comes from and how code runs."""

    processors = 1

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.work = work_of(plan)
        self.empty_space = count(plan.shape) == 0
        self.copied = [i for i, load in enumerate(plan.loads) if ragged(load)]
        self.numbers = [value for value, _ in plan.constants]
        self._launches: dict[bool, list[Launch]] = {}
        self._kernels: dict[bool, list[Kernel]] = {}
        self.foreach_forms: dict[bool, Any] = {}  # see lucid_gpu.fusion.cuda_foreach
        self.aligned: tuple[int, ...] = ()
        if not self.empty_space:
            self.aligned = self.kernels(True)[0].aligned[: len(plan.loads)]

    @property
    def source(self) -> str:
        """The CUDA C, for addresses that are aligned."""
        if self.foreach_forms:
            return "\n".join([form.launch.kernel.source for form in self.foreach_forms.values()])
        if self.empty_space:
            return "// no elements: nothing is launched\n"
        return "\n".join(dict.fromkeys(kernel.source for kernel in self.kernels(True)))

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """Run on the arrays of ``plan.loads`` and the numbers of ``plan.scalars``."""
        plan = self.plan
        outs = [self.empty(store.shape, store.dtype) for store in plan.stores]
        if self.empty_space:
            for out in outs:
                out[...] = 0
            return outs
        if self.copied:
            arrays = [a.copy() if i in self.copied else a for i, a in enumerate(arrays)]
        values = [self.address(a) for a in arrays]
        packed = True
        for address, multiple in zip(values, self.aligned):
            if address % multiple:
                packed = False
        launches = self._launches.get(packed) or self._compiled(packed)
        fields = self.fields_of(scalars)
        if len(launches) == 1:
            values += [self.address(out) for out in outs]
            self._launch(launches[0], values + fields)
        else:
            self._run_in_two(launches, values, fields, outs)
        return outs

    def fields_of(self, scalars: Sequence[Any]) -> list[Any]:
        """The plan's scalars as `struct` packs them."""
        fields: list[Any] = []
        for number, (_, d) in zip(scalars, self.plan.scalars):
            fields += number_fields(number, d)
        return fields

    def _run_in_two(
        self, launches: list[Launch], values: list[Any], fields: list[Any], outs: list[Any]
    ) -> None:
        """A reduction whose first kernel leaves partial sums."""
        first, second = launches
        number, types = partial_sums(self.work, first.kernel)
        parts = [self.empty((number,), d) for d in types]
        addresses = [self.address(part) for part in parts]
        self._launch(first, values + addresses + fields)
        self._launch(second, addresses + [self.address(out) for out in outs])

    def _launch(self, launch: Launch, values: Sequence[Any]) -> None:
        arguments = launch.arguments()
        self.start(launch, launch.kernel.grid, arguments.fill(values))
        launch.spare.append(arguments)

    def kernels(self, packed: bool) -> list[Kernel]:
        """The kernels of this plan, not yet compiled."""
        found = self._kernels.get(packed)
        if found is None:
            if self.work.axes is not None:
                found = reduction(self.work, packed)
            else:
                found = [elementwise(self.work, self.processors, packed)]
            self._kernels[packed] = found
        return found

    def _compiled(self, packed: bool) -> list[Launch]:
        first, *rest = self.kernels(packed)
        launches = [Launch(first, self.work, self.numbers, self.compile(first))]
        for kernel in rest:
            no_numbers = self.work._replace(scalars=(), constants=())
            launches.append(Launch(kernel, no_numbers, (), self.compile(kernel)))
        self._launches[packed] = launches
        return launches

    def at_home(self) -> AbstractContextManager[None]:
        """Where `compile` and `start` work: with the plan's device current."""
        return nullcontext()

    # --- what a subclass provides -----------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], d: dtype) -> Any:
        """A fresh row-major array."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        """Where an array's first element lies."""
        raise NotImplementedError

    def compile(self, kernel: Kernel) -> Any:
        """Compile a kernel, or find it compiled."""
        raise NotImplementedError

    def start(self, launch: Launch, grid: tuple[int, int], table: int) -> None:
        """Run a kernel on the arguments a table points to."""
        raise NotImplementedError
