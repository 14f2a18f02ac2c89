"""The NumPy executor: runs a plan's generated block over an iteration space.

Small plans run in one call; larger ones in blocks that stay in cache, which threads draw in turn.
Where every op is a plain ufunc, `native_loops` walks the same lines without the interpreter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lucid_gpu.core.layout import row_major, step_of, walk_of
from lucid_gpu.core.program import when_forgotten
from lucid_gpu.devices import threads
from lucid_gpu.devices.blas import UNSHARED, on_few_threads
from lucid_gpu.devices.blocks import share
from lucid_gpu.devices.copies import strided, unspread
from lucid_gpu.devices.loops import address, addresses
from lucid_gpu.devices.pool import SMALLEST, aligned, pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import blocks, native_loops, special
from lucid_gpu.fusion.blocks import Layout, collapse
from lucid_gpu.fusion.native_reductions import reduced
from lucid_gpu.fusion.numpy_source import (
    COLD,
    NAMESPACE,
    Code,
    Function,
    generate,
    lay_out,
    runs_whole,
)
from lucid_gpu.fusion.plan import Plan, Shape, Store, Tail
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS
from lucid_gpu.launch.observers import launched_rows, observed, observers
from lucid_gpu.tape.native import core

_codes: dict[Any, Code] = {}
_earlier: dict[Any, Code] = {}  # what was used before the plans were forgotten


class _Form:
    """What plans of one body run.

    Attributes
    ----------
    code : Code
    constants : list of 0-d array
    block, once : Function
        The code's functions with these; ``once`` is None where it has none.
    flat : bool
        Whether all its arrays are row by row and of the plan's shape, or single elements.
    cold : int
        How often plans of few elements that are flat still run before there is a table for them.
    native : Kernel or None
        That table: it takes as many elements as it was made for, or fewer.
    """

    __slots__ = ("block", "code", "cold", "constants", "flat", "native", "once")

    def __init__(self, plan: Plan, code: Code, whole: bool) -> None:
        self.code = code
        self.constants = [as_number(v, d) for v, d in plan.constants]
        self.block = Function(code.block, self.constants)
        self.once = None if code.once is None else Function(code.once, self.constants)
        arrays = [(v.shape, v.strides) for v in plan.loads]
        arrays += [(plan.shape_at(i), None) for _, i in code.small.values()]
        whole_or_one = [s is None and (n == plan.shape or math.prod(n) == 1) for n, s in arrays]
        self.flat = whole and plan.reduction is None and not plan.indices and all(whole_or_one)
        self.cold = COLD if self.flat else 0
        self.native: native_loops.Kernel | None = None


def _form_of(plan: Plan, whole: bool) -> _Form:
    """The same for all extents, of few elements or of many."""
    stores = tuple([(s.index, s.dtype) for s in plan.stores])
    rows = None if plan.reduction is None else plan.reduction.rows
    beside = stores, rows, plan.over, plan.turned, whole
    form: _Form | None = plan.body.codes.get(beside)
    if form is None:
        key = plan.body.key, beside
        code = _codes.get(key) or _earlier.get(key) or generate(plan, whole)
        _codes[key] = code
        form = plan.body.codes[beside] = _Form(plan, code, whole)
    return form


def _keep_used() -> None:
    """Let go of code that no plan made since the last time has used."""
    global _codes, _earlier
    _codes, _earlier = {}, _codes


when_forgotten.append(_keep_used)


FEW_LINES = 256  # calls along rows that C makes however narrow they are
_NARROW = 65504.0  # float16's largest: no conversion to floats overflows up to here


def as_number(value: Any, d: dtype) -> Any:
    """A Python number as a 0-d array, which ufuncs take faster than numbers or NumPy scalars."""
    if type(value) is float and -_NARROW <= value <= _NARROW:
        return np.array(value, d.numpy)
    if d.category == 1 and isinstance(value, int):
        bits = d.itemsize * 8
        value &= (1 << bits) - 1
        if d.is_signed and value >> (bits - 1):
            value -= 1 << bits
    with np.errstate(over="ignore"):  # beyond the type's range is infinity, silently
        return np.array(value, d.numpy)


class Index:
    """Each element's own number, as an array of which only the parts asked for are made."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def reshape(self, shape: Shape) -> Index:
        return Index(shape)

    def __getitem__(self, part: tuple[slice, ...]) -> Any:
        """The numbers of a block, int64."""
        numbers: Any = np.zeros((), np.int64)
        for cut, extent, step in zip(part, self.shape, row_major(self.shape), strict=True):
            along = np.arange(*cut.indices(extent), dtype=np.int64)
            numbers = numbers[..., None] + along * step
        return numbers


def _memory_for(store: Store) -> Callable[..., Any]:
    """What makes an array that is stored: small ones do not come from the pool."""
    small = math.prod(store.shape) * store.dtype.itemsize < SMALLEST
    return np.empty if small else pool.empty


class Executable:
    """A plan ready to run on NumPy arrays."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.total = math.prod(plan.shape)
        whole = runs_whole(plan)
        self.form = form = _form_of(plan, whole)
        self.code = code = form.code
        self.constants, self.block, self.once = form.constants, form.block, form.once
        self.spare: list[list[Any]] = []
        self.again = False
        self.layout: Layout | None = None
        if not whole:
            self.layout, self.cut, self.axes = lay_out(plan, code)
        self.sizes = [plan.shape_at(i) for i in code.sizes]  # what `once` makes
        rows = () if plan.reduction is None else plan.reduction.rows
        self.ufuncs = [getattr(np, str(REDUCTIONS[row].ufunc)) for row in rows]
        self.sums = self.total > UNSHARED and np.add in self.ufuncs
        # runs line by line before there is a table
        self.cold = COLD if whole and not form.flat else 0
        self.stores = [(_memory_for(s), s.shape, s.dtype.numpy) for s in plan.stores]
        self.expanded = [
            i for i, load in enumerate(plan.loads) if load.strides is not None and 0 in load.strides
        ]
        self.indices = [
            np.arange(n).reshape(own) if whole or n < self.total else Index(own)
            for own in plan.indices
            for n in [math.prod(own)]
        ]

    @functools.cached_property
    def native(self) -> native_loops.Kernel | None:
        """The same block as a table of NumPy's loops; the next runs may be calls of C."""
        kernel = self.form.native
        if kernel is None or self.total > kernel.whole:
            kernel = self._table()
        if kernel is not None:
            self._get_ready(kernel)
        return kernel

    def _table(self) -> native_loops.Kernel | None:
        """Return the table, where all are ufuncs on plain layouts.

        Making it takes as long as some ten runs line by line: a shape that never comes again has
        none, or one that was made for another.
        """
        plan = self.plan
        if plan.reduction is not None or not self.total or plan.indices:
            return None
        made = self.build({f"o{i}": (v.dtype, v.shape) for i, v in enumerate(plan.stores)})
        if self.form.flat:
            self.form.native = made
        return made

    def build(self, outs: Mapping[str, tuple[dtype, Shape]]) -> native_loops.Kernel | None:
        """The block's lines as a table, whose last inputs are what they leave."""
        plan, code = self.plan, self.code
        fixed = {f"k{i}": number for i, number in enumerate(self.constants)}
        fixed.update(
            {k: v for k, v in NAMESPACE.items() if k.startswith(("one_", "zero_", "erf_", "gelu_"))}
        )
        arrays: dict[str, tuple[dtype, Shape]] = {}  # in the order in which they are given
        arrays.update({f"a{i}": (v.dtype, v.shape) for i, v in enumerate(plan.loads)})
        arrays.update({f"x{i}": (d, ()) for i, (_, d) in enumerate(plan.scalars)})
        arrays.update({n: (d, plan.shape_at(i)) for n, (d, i) in code.small.items()})
        arrays.update(outs)
        scratch = {f"s{i}": d.numpy for i, d in enumerate(code.scratch) if f"s{i}" not in outs}
        types = {name: d.numpy for name, (d, _) in arrays.items()}
        types.update(scratch)
        types.update({name: number.dtype for name, number in fixed.items()})
        rows = self._rows(arrays, sum([d.itemsize for d in code.scratch]))
        if rows is None:
            return None
        once = [] if code.once is None else [v for v in code.once.body if "= empty(" not in v]
        sizes = {name: math.prod(shape) for name, (_, shape) in arrays.items()}
        return native_loops.build(
            code.lines, types, fixed, [*arrays], [*scratch], rows, once, sizes
        )

    def _rows(
        self, arrays: Mapping[str, tuple[dtype, Shape]], scratch: int
    ) -> native_loops.Rows | None:
        """One row after another: of the flat space, or of matrices that vectors are spread over."""
        space, rank = self.plan.shape, len(self.plan.shape)
        wide = {n: (d, s) for n, (d, s) in arrays.items() if math.prod(s) > 1 or self.total == 1}
        strides = {  # in bytes
            f"a{i}": load.strides
            for i, load in enumerate(self.plan.loads)
            if load.strides is not None and math.prod(load.shape) > 1
        }
        if all(math.prod(s) == self.total for _, s in wide.values()):
            found = {n: step_of(wide[n][1], own) for n, own in strides.items()}
            steps = {n: step for n, step in found.items() if step is not None}
            if len(steps) == len(strides):
                items = {n: d.itemsize for n, (d, _) in wide.items()}
                calls = sum([line.count("(") for line in self.code.lines])
                total = self.total
                if self.form.native is not None:
                    total = 1 << (total - 1).bit_length()  # others will come
                return native_loops.flat_rows(total, items, scratch, steps, calls)
        laid = {}
        for name, (d, own) in wide.items():
            row_by_row = tuple([step * d.itemsize for step in row_major(own)])
            laid[name] = walk_of(space, own, strides.get(name, row_by_row))
        groups = collapse(space, [(space, walk) for walk in laid.values()])
        if len(groups) not in (2, 3):
            return None
        cut, inner = groups[0][1], groups[-1][0]
        outer, middle, width = [
            math.prod(space[part]) for part in (slice(cut), slice(cut, inner), slice(inner, None))
        ]
        count = outer * middle
        few = core is not None and count * len(self.code.lines) <= FEW_LINES
        pieces = native_loops.pieces(width)
        if len(groups) == 3 and pieces > 1 or width < (1 if few else native_loops.NARROWEST):
            return None
        leaps: dict[str, int] = {}
        if len(groups) == 2:
            middle, period = outer, 0
        elif middle * width < native_loops.SHORTEST:
            return None
        else:
            period = middle
            leaps = {n: step_of(space[:cut], walk[:cut]) or 0 for n, walk in laid.items()}
        moves = {}
        for name, walk in laid.items():
            first = cut if period else 0
            parts = slice(first, inner), slice(inner, rank)
            move, step = [step_of(space[part], walk[part]) or 0 for part in parts]
            if name in strides and step != wide[name][0].itemsize:
                return None  # NumPy walks along other dimensions, which have other bits
            moves[name] = move, step
        if pieces > 1:
            leaps = {name: move for name, (move, _) in moves.items()}
            moves = {name: (width // pieces * step, step) for name, (_, step) in moves.items()}
            period = pieces
        return native_loops.Rows(count * pieces, width // pieces, moves, period, leaps)

    @property
    def source(self) -> str:
        text: str = self.code.source
        return text

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """Run on the arrays of ``plan.all_loads`` and the numbers of ``plan.all_scalars``."""
        plan = self.plan
        if plan.tail is not None:
            results = self._with_tail(plan.tail, arrays, scalars)
        else:
            results = self._run(arrays, scalars)
        if plan.reduction is not None and self.cold >= 0:
            self.cold -= 1
            if self.cold < 0:
                plan.ready = reduced(self)
        return results

    def _with_tail(self, tail: Tail, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """Reduce, then go on with the results."""
        loads, numbers = len(self.plan.loads), len(self.plan.scalars)
        results = self._run(arrays[:loads], scalars[:numbers])
        rest = iter(arrays[loads:])
        inputs = [next(rest) if s is None else results[s] for s in tail.sources]
        if tail.plan.executable is None:
            tail.plan.executable = Executable(tail.plan)
        return results + tail.plan.executable(inputs, scalars[numbers:])

    def _run(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        plan = self.plan
        if scalars:
            scalars = [as_number(v, d) for v, (_, d) in zip(scalars, plan.scalars, strict=True)]
        if self.indices:
            arrays = [*arrays, *self.indices]
        if plan.reduction is not None and self.layout is None and self.total:
            whole = threads.run_quietly, self._run_whole, arrays, scalars, ()
            results: list[Any] = on_few_threads(0, *whole) if self.sums else whole[0](*whole[1:])
            return results
        outs = []
        for empty, shape, d in self.stores:
            outs.append(empty(shape, d))
        self._fill(arrays, scalars, outs)
        return outs

    def bound(
        self, arrays: Sequence[Any], scalars: Sequence[Any], results: list[Any]
    ) -> Callable[[], Any] | None:
        """What runs the plan again on these arrays, into these results; None if nothing can."""
        plan = self.plan
        if plan.tail is not None or plan.reduction is not None or not self.total:
            return None
        numbers = [as_number(v, d) for v, (_, d) in zip(scalars, plan.scalars, strict=True)]
        if self.native is not None and self.once is None:
            return self.native.bound([*arrays, *numbers, *results], self.total)
        return functools.partial(self._fill, [*arrays, *self.indices], numbers, results)

    def _fill(self, arrays: Sequence[Any], scalars: Sequence[Any], outs: list[Any]) -> None:
        """Store the values of a plan that does not reduce."""
        if not self.total:
            for out in outs:
                out[...] = 0
            return
        if self.cold > 0 or self.form.cold > 0:  # two threads may both count the last
            self.cold -= 1
            self.form.cold -= 1
            threads.run_quietly(self._run_whole, arrays, scalars, outs)
        elif self.native is not None:
            small = (
                threads.run_quietly(self.once, *arrays, *scalars, *self.sizes) if self.once else ()
            )
            self.native(([*arrays, *scalars, *small, *outs], self.total))
        elif self.layout is None:
            threads.run_quietly(self._run_whole, arrays, scalars, outs)
        else:
            self._run_blocks(self.layout, arrays, scalars, outs)

    def _get_ready(self, kernel: native_loops.Kernel) -> None:
        """Let the next runs of this plan be calls of C, if its kernel can be."""
        plan = self.plan
        if plan.order is None:
            plan.ready = self.ready(kernel, plan.read)

    def ready(self, kernel: native_loops.Kernel, read: Sequence[int]) -> Any:
        """The plan in C, on these leaves; None where its kernel is no walk over little memory."""
        if kernel.walk is None or len(self.stores) > core.MOST_STORES:
            return None
        small = all(empty is np.empty for empty, _, _ in self.stores)
        if not small or self.total > kernel.whole:
            return None
        types = tuple([d for _, _, d in self.stores])
        numbers = tuple(self.plan.numbers)
        layouts = tuple([v.strides and (v.shape, v.strides) for v in self.plan.loads])
        return core.Ready(kernel.walk, tuple(read), numbers, self.plan.shape, types, layouts)

    def value_type(self, number: int) -> dtype:
        """The type in which what a store holds is computed."""
        return self.plan.body.instructions[self.plan.stores[number].index].dtype

    def _run_whole(self, arrays: Sequence[Any], scalars: Sequence[Any], outs: Any) -> Any:
        code = self.code
        small = self.once(*arrays, *scalars, *self.sizes) if self.once else ()
        try:
            scratch = self.spare.pop()
        except IndexError:  # none left by an earlier run, or another thread took it
            scratch = _scratch(code.scratch, self.plan.shape)
        block = self.block.compiled or self.block
        values = block(*arrays, *scalars, *small, *outs, *scratch)
        if self.plan.reduction is not None:
            outs = [self._finished(number, value) for number, value in enumerate(values)]
        if self.again:  # a shape that never comes again holds no memory
            self.spare.append(scratch)
        self.again = True
        return outs

    def _finished(self, number: int, value: Any) -> Any:
        """A value reduced."""
        axes, shape = self.plan.reduction.axes, self.plan.shape  # type: ignore[union-attr]
        return self._result(number, _reduce(self.ufuncs[number], value, shape, axes))

    def _result(self, number: int, total: Any) -> Any:
        """A reduction's result, divided if it is a mean, as it is stored."""
        divisor, store = self.plan.divisors[number], self.plan.stores[number]
        if divisor is not None:
            np.divide(total, total.dtype.type(divisor), total)
        total = total.reshape(store.shape)
        if total.dtype != store.dtype.numpy:
            wide, total = total, np.empty(store.shape, store.dtype.numpy)
            special.cast(wide, total)
        elif not total.flags.c_contiguous:  # `reduce` lays its result out as the values lay
            total = total.copy()
        return total

    def _run_blocks(
        self, layout: Layout, arrays: Sequence[Any], scalars: Sequence[Any], outs: list[Any]
    ) -> None:
        code = self.code
        small = threads.run_quietly(self.once, *arrays, *scalars, *self.sizes) if self.once else ()
        fixed: dict[str, Any] = {}
        loads = len(self.plan.loads)
        arguments = (("a", arrays[:loads]), ("i", arrays[loads:]), ("x", scalars), ("o", outs))
        for prefix, values in arguments:
            fixed.update({f"{prefix}{i}": v for i, v in enumerate(values)})
        for i in self.expanded:
            fixed[f"a{i}"] = unspread(fixed[f"a{i}"])
        fixed.update(zip(code.small, small, strict=True))
        reduction = self.plan.reduction
        walk = [
            (position, fixed[name].reshape(shape), wide)
            for position, (name, shape, wide) in enumerate(self.cut)
        ]
        rest = [fixed[name].reshape(()) for name in code.uncut]  # one element each
        parts: list[Any] = [None] * len(layout.slices)
        block, ufuncs = self.block, self.ufuncs

        def work(numbers: Iterator[int]) -> None:
            scratch: list[Any] = []
            current: Shape | None = None
            for number in numbers:
                index, shape = layout.slices[number], layout.shapes[number]
                if shape != current:
                    scratch, current = memory_of_thread.views(code.scratch, shape), shape
                cut = [
                    array[index]
                    if wide is None
                    else array[tuple([s if w else ALL for s, w in zip(index, wide, strict=True)])]
                    for _, array, wide in walk
                ]
                values = block(*cut, *rest, *scratch)
                if reduction is not None:
                    parts[number] = [
                        _reduce(ufunc, v, shape, self.axes) for ufunc, v in zip(ufuncs, values)
                    ]

        steps = len(self.plan.body.instructions) + (reduction is not None)
        alone = self.total * steps <= native_loops.ALONE
        share(range(len(layout.slices)), work, alone, products=self.sums)
        if reduction is not None:
            threads.run_quietly(self._combine, layout, parts, outs)

    def _combine(self, layout: Layout, parts: list[Any], outs: list[Any]) -> None:
        """Join the blocks' results in the blocks' order, whichever thread computed them."""
        keep = tuple([1 if i in self.axes else n for i, n in enumerate(layout.shape)])
        for number, (ufunc, out) in enumerate(zip(self.ufuncs, outs, strict=True)):
            kind = parts[0][number].dtype
            if math.prod(keep) == 1:
                stacked = np.array([p[number].reshape(()) for p in parts])
                total = ufunc.reduce(stacked, 0, kind)
            else:
                total, written = np.empty(keep, kind), set()
                for index, part in zip(layout.slices, parts, strict=True):
                    where = tuple([ALL if i in self.axes else s for i, s in enumerate(index)])
                    key = str(where)
                    if key in written:
                        ufunc(total[where], part[number], out=total[where])
                    else:
                        total[where] = part[number]
                        written.add(key)
            out[...] = self._result(number, np.asarray(total))

    def over_rows(
        self, columns: Sequence[Sequence[Any]], read: Sequence[int], scalars: Sequence[Any]
    ) -> None:
        """Overwrite the first columns of arrays by the values of a plan made of stand-ins.

        See `lucid_gpu.fusion.cuda_executor.Executable.over_rows`. The blocks run over all arrays,
        so that threads share their sum, not each.
        """
        if observers:
            count = sum([array.size for array in columns[0]])
            observed(launched_rows(self.plan, count), self._over_rows, columns, read, scalars)
        else:
            self._over_rows(columns, read, scalars)

    def _over_rows(
        self, columns: Sequence[Sequence[Any]], read: Sequence[int], scalars: Sequence[Any]
    ) -> None:
        plan, code = self.plan, self.code
        loads, stores = [columns[c] for c in read], columns[: len(plan.stores)]
        numbers = [as_number(v, d) for v, (_, d) in zip(scalars, plan.scalars, strict=True)]
        none = [None for _ in loads]
        small = threads.run_quietly(self.once, *none, *numbers, *self.sizes) if self.once else ()
        if self.native is not None:
            fixed_addresses = [address(number) for number in (*numbers, *small)]
            at = [addresses(column) for column in columns]
            rows = zip(*[at[c] for c in read], *at[: len(stores)], strict=True)
            n, sizes = len(read), [array.size for array in columns[0]]
            jobs = [
                ([*r[:n], *fixed_addresses, *r[n:]], m) for r, m in zip(rows, sizes, strict=True)
            ]
            self.native.run(jobs)
            return
        fixed = {f"x{i}": v for i, v in enumerate(numbers)}
        fixed.update(zip(code.small, small, strict=True))
        rest = [fixed[name] for name in code.uncut]
        table = {"a": loads, "o": stores}
        cut = [table[name[0]][int(name[1:])] for name, _, _ in self.cut]
        flat = [[array.reshape(-1) for array in column] for column in cut]
        widest = max(ins.dtype.itemsize for ins in plan.body.instructions)
        sizes = [array.size for array in flat[0]]
        few = sum(sizes) <= blocks.SINGLE or threads.team.count == 1
        step = blocks.block_bytes(few) // widest
        pieces = [
            (row, low, min(low + step, n))
            for row, n in enumerate(sizes)
            for low in range(0, n, step)
        ]
        block = self.block

        def work(waiting: Iterator[tuple[int, int, int]]) -> None:
            scratch: list[Any] = []
            length = -1
            for row, low, high in waiting:
                if high - low != length:
                    length = high - low
                    scratch = memory_of_thread.views(code.scratch, (length,))
                block(*[column[row][low:high] for column in flat], *rest, *scratch)

        share(pieces, work, few, products=False)


ALL = slice(None)


def _reduce(ufunc: Any, value: Any, shape: Shape, axes: Sequence[int]) -> Any:
    """A block reduced over some axes, which stay as ones."""
    if value.shape != shape:
        steps = [0 if n == 1 else step for n, step in zip(value.shape, value.strides)]
        value = strided(value, shape, (*[0] * (len(shape) - value.ndim), *steps))
    elif ufunc is np.add and value.size > 4096 and value.ndim > 1 and value.dtype.char in "fd":
        total = _by_blas(value, axes)
        if total is not None:
            return total
    return ufunc.reduce(value, axes, value.dtype, None, True)


def _by_blas(value: Any, axes: Sequence[int]) -> Any:
    """Sums over all leading or all trailing axes: a product with ones is several times as fast.

    None where they are other axes, or rows so long that adding in pairs rounds less.
    """
    shape, count = value.shape, len(axes)
    if count == value.ndim or not value.flags.c_contiguous:
        return None
    if tuple(axes) == tuple(range(count)):
        rows = value.reshape(math.prod(shape[:count]), -1)
        return np.matmul(_ones(len(rows), value.dtype), rows).reshape((1,) * count + shape[count:])
    kept = value.ndim - count
    columns = math.prod(shape[kept:])
    if tuple(axes) != tuple(range(kept, value.ndim)) or columns > LONG:
        return None
    sums = np.matmul(value.reshape(-1, columns), _ones(columns, value.dtype))
    return sums.reshape(shape[:kept] + (1,) * count)


@functools.lru_cache(maxsize=16)
def _ones(count: int, kind: Any) -> Any:
    """What the rows or columns of a block are multiplied by; no longer than a block."""
    return np.ones(count, kind)


LONG = 2048  # elements of a row


def _scratch(types: Sequence[dtype], shape: Shape) -> list[Any]:
    count = math.prod(shape)
    return [aligned(count * d.itemsize).view(d.numpy).reshape(shape) for d in types]
