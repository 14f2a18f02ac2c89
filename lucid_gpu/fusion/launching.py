"""A plan's CUDA C: its kernels, their arguments, their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.devices import room
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import partial_sums, reduction
from lucid_gpu.fusion.cuda_source import Kernel, Work, ragged, work_of
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
        launcher = self.launcher
        if launcher.is_home():
            return self._run(arrays, scalars)
        with launcher.at_home():
            return self._run(arrays, scalars)

    def _run(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        launcher = self.launcher
        outs = [self.empty(s.shape, s.dtype, launcher.device) for s in self.plan.stores]
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
        launches = self._launches.get(packed) or self._compiled(packed)
        fields = self.fields_of(scalars)
        if len(launches) == 1:
            values += [address(out) for out in outs]
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
        launcher = self.launcher
        parts = [self.empty((number,), d, launcher.device) for d in types]
        addresses = [launcher.address(part) for part in parts]
        self._launch(first, values + addresses + fields)
        self._launch(second, addresses + [launcher.address(out) for out in outs])

    def _launch(self, launch: Launch, values: Sequence[Any]) -> None:
        self.launcher.launch(launch.function, launch.packing, values, launch.grid, launch.block)

    def kernels(self, packed: bool) -> list[Kernel]:
        """The kernels of this plan, not yet compiled."""
        found = self._kernels.get(packed)
        if found is None:
            if self.work.axes is not None:
                found = reduction(self.work, packed)
            else:
                moved = self.plan.bytes_read + self.plan.bytes_written
                streamed = moved > self.launcher.cache
                found = [elementwise(self.work, self.processors, packed, streamed=streamed)]
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

    def compile(self, kernel: Kernel) -> Any:
        """Compile a kernel, or find it compiled."""
        return self.launcher.compile(kernel.name, kernel.source, kernel.cooperative)
