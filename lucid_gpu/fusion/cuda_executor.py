"""Runs a plan as CUDA C where a launcher runs it: its kernels, their arguments, their order.

That is on a GPU, or compiled for the host (``LUCID_EXECUTOR=host-cuda``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial, reduce
from itertools import starmap
from operator import or_
from typing import Any, NamedTuple

from lucid_gpu.core.program import derived
from lucid_gpu.devices import owners
from lucid_gpu.devices.threads import processors
from lucid_gpu.dtypes import uint8
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_foreach import foreach_kernel, rows_of
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import Kernel, Work, numbers_of, ragged, work_of
from lucid_gpu.fusion.op_by_op import Cut, constants, cut
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.launch import compiling
from lucid_gpu.launch.arguments import LETTERS, Packing, number_fields
from lucid_gpu.launch.compiling import Text
from lucid_gpu.launch.launcher import Launcher
from lucid_gpu.launch.launchers import launcher_of
from lucid_gpu.launch.observers import debug, launched_rows, observed, observers
from lucid_gpu.launch.rows import Table, filled

MEETINGS = 2  # from which on a fused kernel is compiled: most that come twice come again and again
QUICK = 0.02  # seconds in which a kernel comes from the disk; to compile one takes longer
SLOW = 2  # ops that took longer, one after the other: so they were not compiled ahead
FEW = 3  # processors, with which nothing is compiled that might not be needed


class Launch:
    """One kernel of a plan, compiled, with its constant arguments in place."""

    def __init__(
        self,
        launcher: Launcher,
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
        self.launcher, self.function = launcher, function
        self.grid, self.block = (*kernel.grid, 1), (*kernel.block, 1)
        self.start = launcher.bound(function, self.packing, self.grid, self.block)

    def __call__(self, values: list[Any]) -> None:
        """Start it on packed addresses and numbers; its device is the current one."""
        if self.start is None or not self.start(values):
            packed = self.packing.filled(values)
            self.launcher.launch(self.function, packed, self.grid, self.block)


class Form(NamedTuple):
    """A kernel over many tensors, compiled for some types of them."""

    launch: Launch
    table: Table
    tile: int
    itemsizes: tuple[int, ...]


class Executable:
    """A plan ready to run as CUDA C on its device.

    Parameters
    ----------
    plan : Plan
    shared : bool
        It is one op of other plans. Its kernel is waited for, and is the same for small and large
        arrays.
    """

    def __init__(self, plan: Plan, shared: bool = False) -> None:
        self.plan = plan
        self.launcher = launcher = launcher_of(plan.device)
        self.shared = shared
        self.processors = launcher.processors
        self.results = [(store.shape, store.dtype.numpy) for store in plan.all_stores]
        self.work = work_of(plan)
        self.empty_space = math.prod(plan.shape) == 0
        self.copied = [i for i, load in enumerate(plan.all_loads) if ragged(load)]
        self.numbers = numbers_of(plan)
        self._launches: dict[bool, Launch | None] = {True: None, False: None}
        self._kernels: dict[bool, Kernel] = {}
        self._cuts: dict[bool, Cut | None] = {}
        self._parted = False  # whether it ever ran op by op
        self._forms: dict[bool, Form] = {}  # of many tensors
        self.aligned: tuple[int, ...] = ()
        if not self.empty_space:
            self.aligned = self.kernel(True).aligned[: len(plan.loads)]

    @property
    def source(self) -> str:
        """The CUDA C, for addresses that are aligned."""
        if self._forms:
            return "\n".join([form.launch.kernel.source for form in self._forms.values()])
        if self.empty_space:
            return "// no elements: nothing is launched\n"
        return self.kernel(True).source

    def __call__(
        self, arrays: Sequence[Any], scalars: Sequence[Any], into: list[Any] | None = None
    ) -> list[Any]:
        """Run on the arrays of ``plan.all_loads`` and the numbers of ``plan.all_scalars``.

        Results are new arrays, or ``into``, of a plan that never runs op by op.
        """
        launcher = self.launcher
        if not launcher.is_home():
            with launcher.at_home():
                return self(arrays, scalars, into)
        if self.empty_space:
            outs = [*starmap(launcher.empty, self.results)]
            for out in outs:
                out[...] = 0
            return outs
        if self.copied:
            arrays = [a.copy() if i in self.copied else a for i, a in enumerate(arrays)]
        address = launcher.address
        values = [*map(address, arrays)]
        packed = True
        for pointer, multiple in zip(values, self.aligned):
            if pointer % multiple:
                packed = False
        if not packed:
            arrays = self._of_whole_elements(arrays, values)
            values = [*map(address, arrays)]
        launch = self._launches[packed]
        if launch is None:
            meanwhile = self._meanwhile(packed)
            if meanwhile is not None:
                return self._run_parts(meanwhile, arrays, scalars)
            launch = self._compiled(packed)
        fields = self.fields_of(scalars) if scalars else []
        outs = into or [*starmap(launcher.empty, self.results)]
        room = [launcher.empty((size,), uint8.numpy) for size in launch.kernel.partials]
        if room:
            room.append(launcher.counters())
        values += map(address, [*outs, *room])
        launch(values + fields)
        return outs

    def _of_whole_elements(self, arrays: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """Copies of arrays that begin within an element, which NumPy allows and CUDA does not."""
        return [
            a.copy() if pointer % load.dtype.itemsize else a
            for a, pointer, load in zip(arrays, places, self.plan.all_loads, strict=True)
        ]

    def fields_of(self, scalars: Sequence[Any]) -> list[Any]:
        """The plan's scalars as `struct` packs them."""
        fields: list[Any] = []
        for number, (_, d) in zip(scalars, self.plan.all_scalars):
            fields += number_fields(number, d)
        return fields

    def kernel(self, packed: bool) -> Kernel:
        """The kernel of this plan, not yet compiled."""
        kernel = self._kernels.get(packed)
        if kernel is None:
            if self.work.fold is not None:
                kernel = reduction(self.work, packed)
            else:
                moved = self.plan.bytes_read + self.plan.bytes_written
                streamed = moved > self.launcher.cache
                streamed = streamed and not self.shared
                kernel = elementwise(self.work, self.processors, packed, streamed=streamed)
            self._kernels[packed] = kernel
        return kernel

    def _compiled(self, packed: bool) -> Launch:
        function = compiling.compiled(self.launcher, self._text(packed))
        launch = Launch(self.launcher, self.kernel(packed), self.work, self.numbers, function)
        if self._parted and debug:
            print(f"took {self.work.name}, which ran op by op until now")
        self._launches[packed] = launch
        return launch

    def _text(self, packed: bool) -> Text:
        return text_of(self.kernel(packed))

    # --- many tensors -------------------------------------------------------------------------

    def over_rows(
        self, columns: Sequence[Sequence[Any]], read: Sequence[int], scalars: Sequence[Any]
    ) -> None:
        """Overwrite the first columns of arrays by the values of a plan made of stand-ins.

        Parameters
        ----------
        columns : sequence of sequences of arrays
            Row-major arrays, those written first.
        read : sequence of int
            The column of each of the plan's loads.
        scalars : sequence of numbers
            As for a call.
        """
        used = sorted({*range(len(self.plan.stores)), *read})
        renamed = [used.index(c) for c in read]
        address = self.launcher.address
        addresses = [[*map(address, columns[c])] for c in used]
        sizes = [array.size for array in columns[0]]
        rows = [*zip(sizes, *addresses, strict=True)]
        if 0 in sizes:
            rows = [row for row in rows if row[0]]
        fields = self.fields_of(scalars)
        with self.launcher.at_home():
            aligned = self._form(renamed, True).launch.kernel.aligned
            apart: list[tuple[int, ...]] = []  # rows of which some array is not aligned
            for places, multiple in zip(addresses, aligned):
                if reduce(or_, places, 0) % multiple:  # a power of two, which few miss
                    apart = [row for row in rows if _is_apart(row, aligned)]
                    rows = [row for row in rows if not _is_apart(row, aligned)]
                    break
            for packed, some in ((True, rows), (False, apart)):
                if some:
                    self._fill(self._form(renamed, packed), some, fields)

    def _form(self, read: Sequence[int], packed: bool) -> Form:
        form = self._forms.get(packed)
        if form is None:
            work = self.work
            types = [d for _, d in work.stores]
            by_column = dict(zip(read, [d for d, _ in work.loads]))
            types += [by_column[c] for c in range(len(types), max(by_column, default=-1) + 1)]
            kernel, tile = foreach_kernel(work, types, read, packed)
            table = rows_of(work, types)
            function = compiling.compiled(self.launcher, text_of(kernel))
            launch = Launch(self.launcher, kernel, work, self.numbers, function, [table.form])
            sizes = tuple([d.itemsize for d in types])
            form = self._forms[packed] = Form(launch, table, tile, sizes)
        return form

    def _fill(self, form: Form, rows: Sequence[tuple[int, ...]], fields: list[Any]) -> None:
        """Launch as often as the table has to be filled."""
        launch = form.launch
        start = partial(self.launcher.launch, launch.function)
        for table, blocks, elements in filled(form.table, rows, form.tile, form.itemsizes):
            arguments = launch.packing.filled(table + fields), (blocks, 1, 1), launch.block
            if observers:
                observed(launched_rows(self.plan, elements), start, *arguments)
            else:
                start(*arguments)

    # --- op by op -----------------------------------------------------------------------------

    def _meanwhile(self, packed: bool) -> Cut | None:
        """The ops to run while the fused kernel is not compiled, or None where it is to be used.

        The fused kernel is compiled in the background when it is needed for the second time. Where
        several ops have no kernel either, and those do not come from the disk, the fused one is
        waited for: that is one compilation instead of several.
        """
        launcher = self.launcher
        if self.shared or not compiling.in_background(launcher) or owners[launcher.kind].records:
            return None
        text = self._text(packed)
        if compiling.ready(launcher, text):
            return None
        parts = self._cut(packed)
        if parts is None or not self._prepared(parts):
            return None
        if launcher.meet(text) >= MEETINGS:
            compiling.begin(launcher, text)
        return parts

    def _prepared(self, whole: Cut) -> bool:
        """Compile what the ops of a plan lack, unless that is more than the plan's own kernel."""
        launcher = self.launcher
        texts = dict.fromkeys([_shared(part.plan)._text(True) for part in whole.parts])
        missing = [text for text in texts if not compiling.ready(launcher, text)]
        while missing:
            if len(missing) > 1 and launcher.slow >= SLOW:
                if processors() > FEW:
                    for text in missing:
                        compiling.begin(launcher, text)
                return False
            start = time.perf_counter()
            compiling.compiled(launcher, missing.pop(0))
            quick = time.perf_counter() - start < QUICK
            launcher.slow = 0 if quick else launcher.slow + 1
        return True

    def _cut(self, packed: bool) -> Cut | None:
        if packed not in self._cuts:
            self._cuts[packed] = cut(self.plan, packed)
        return self._cuts[packed]

    def _run_parts(self, whole: Cut, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        self._parted = True
        values = dict(enumerate(arrays))
        numbers = [*scalars, *constants(self.plan)]
        for part in whole.parts:
            run = _shared(part.plan)
            read = [values[i] for i in part.reads]
            values.update(zip(part.writes, run(read, [numbers[i] for i in part.numbers])))
            for i in part.last:
                del values[i]
        return [values[i] for i in whole.results]


def _is_apart(row: tuple[int, ...], aligned: Sequence[int]) -> bool:
    """Whether an array of a row, which begins with its size, is not aligned."""
    return any(pointer % multiple for pointer, multiple in zip(row[1:], aligned))


def text_of(kernel: Kernel) -> Text:
    """What a generated kernel is compiled from."""
    return Text(kernel.name, kernel.source, kernel.cooperative, contract=False)


_ops: dict[Any, Executable] = derived("executables of plans of one op")


def _shared(plan: Plan) -> Executable:
    """What runs a plan of one op, for all plans that it is an op of."""
    key = (launcher_of(plan.device), plan.key, plan.divisors)
    executable = _ops.get(key)
    if executable is None:
        executable = _ops[key] = Executable(plan, shared=True)
    return executable
