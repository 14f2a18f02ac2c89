"""A plan's CUDA C: its kernels, their arguments, their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import room
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import Kernel, Work, numbers_of, ragged, work_of
from lucid_gpu.fusion.layout import count
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.launch.arguments import LETTERS, Packing, number_fields
from lucid_gpu.launch.launcher import Launcher


class Launch:
    """One kernel of a plan, compiled, with its constant arguments in place."""

    def __init__(
        self,
        kernel: Kernel,
        work: Work,
        numbers: Sequence[Any],
        function: Any,
        arrays: Sequence[str] | None = None,
    ) -> None:
        fields = [
            *(arrays or ["Q"] * len(kernel.aligned)),
            *[LETTERS[d.name] for d in work.scalars],
        ]
        constants = [
            (LETTERS[d.name], number_fields(value, d))
            for value, d in zip(numbers, work.constants, strict=True)
        ]
        constants += [(size.form, size.values) for size in kernel.sizes]
        self.packing = Packing(fields, constants)
        self.kernel = kernel
        self.function = function
        self.grid, self.block = (*kernel.grid, 1), (*kernel.block, 1)


class CudaExecutable:
    """A plan ready to run as CUDA C where a launcher runs it."""

    def __init__(self, plan: Plan, launcher: Launcher) -> None:
        self.plan = plan
        self.launcher = launcher
        self.processors = launcher.processors
        self.empty = room(launcher.device).empty
        self.work = work_of(plan)
        self.empty_space = count(plan.shape) == 0
        self.copied = [i for i, load in enumerate(plan.all_loads) if ragged(load)]
        self.numbers = numbers_of(plan)
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
        """Run on the arrays of ``plan.all_loads`` and the numbers of ``plan.all_scalars``."""
        launcher = self.launcher
        if launcher.is_home():
            return self._run(arrays, scalars)
        with launcher.at_home():
            return self._run(arrays, scalars)

    def _run(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        launcher = self.launcher
        outs = [self.empty(s.shape, s.dtype, launcher.device) for s in self.plan.all_stores]
        if self.empty_space:
            for out in outs:
                out[...] = 0
            return outs
        if self.copied:
            arrays = [a.copy() if i in self.copied else a for i, a in enumerate(arrays)]
        address = launcher.address
        values = [address(a) for a in arrays]
        packed = True
        for place, multiple in zip(values, self.aligned):
            if place % multiple:
                packed = False
        if not packed:
            arrays = self._of_whole_elements(arrays, values)
            values = [address(a) for a in arrays]
        launches = self._launches.get(packed) or self._compiled(packed)
        fields = self.fields_of(scalars)
        if len(launches) == 1:
            values += [address(out) for out in outs]
            self._launch(launches[0], values + fields)
        else:
            self._run_in_two(launches, values, fields, outs)
        return outs

    def _of_whole_elements(self, arrays: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """Copies of arrays that begin within an element, which NumPy allows and CUDA does not."""
        return [
            a.copy() if place % load.dtype.itemsize else a
            for a, place, load in zip(arrays, places, self.plan.all_loads, strict=True)
        ]

    def fields_of(self, scalars: Sequence[Any]) -> list[Any]:
        """The plan's scalars as `struct` packs them."""
        fields: list[Any] = []
        for number, (_, d) in zip(scalars, self.plan.all_scalars):
            fields += number_fields(number, d)
        return fields

    def _run_in_two(
        self, launches: list[Launch], values: list[Any], fields: list[Any], outs: list[Any]
    ) -> None:
        """A reduction whose first kernel leaves states, to which the second adds."""
        first, second = launches
        head, kept, launcher = len(self.plan.loads), len(self.plan.wholes), self.launcher
        parts = [self.empty((size,), dt.uint8, launcher.device) for size in first.kernel.partials]
        states = [launcher.address(part) for part in parts]
        outputs = [launcher.address(out) for out in outs]
        self._launch(first, values[:head] + outputs[:kept] + states + fields)
        self._launch(second, states + values[head:] + outputs[kept:] + fields)

    def _launch(self, launch: Launch, values: Sequence[Any]) -> None:
        self.launcher.launch(launch.function, launch.packing, values, launch.grid, launch.block)

    def kernels(self, packed: bool) -> list[Kernel]:
        """The kernels of this plan, not yet compiled."""
        found = self._kernels.get(packed)
        if found is None:
            if self.work.fold is not None:
                found = reduction(self.work, packed)
            else:
                moved = self.plan.bytes_read + self.plan.bytes_written
                streamed = moved > self.launcher.cache
                found = [elementwise(self.work, self.processors, packed, streamed=streamed)]
            self._kernels[packed] = found
        return found

    def _compiled(self, packed: bool) -> list[Launch]:
        launches = [
            Launch(kernel, self.work, self.numbers, self.compile(kernel))
            for kernel in self.kernels(packed)
        ]
        self._launches[packed] = launches
        return launches

    def compile(self, kernel: Kernel) -> Any:
        """Compile a kernel, or find it compiled."""
        return self.launcher.compile(kernel.name, kernel.source, kernel.cooperative)
