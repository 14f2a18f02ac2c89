"""`torch.utils.flop_counter`: how many operations products, convolutions and attention take."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.core.node import Node, run_node
from lucid_gpu.nn.modules.hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from lucid_gpu.ops import aten
from lucid_gpu.tape import costly
from lucid_gpu.tape.costly import CostlyCall
from lucid_gpu.tape.door import NAMES, Watch

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[..., Any]:
    """A decorator of a function that counts the operations of an op, or of several.

    Parameters
    ----------
    targets : packet or list of packets
        Such as ``torch.ops.aten.mm``.
    get_raw : bool
        Whether the function is called with tensors and ``out_val``, rather than with their shapes
        and ``out_shape``.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counted = _told(formula, get_raw)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[target] = counted
        return formula

    return register


def _told(formula: Callable[..., int], raw: bool = False) -> Callable[..., int]:
    """A formula as it is called here: with arrays or tensors, and ``out_val``."""
    if raw or getattr(formula, "_get_raw", False):
        return formula

    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return formula(*map(_shape, args), out_shape=_shape(out_val), **kwargs)

    return counted


def _shape(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_shape(part) for part in value])
    return tuple(value.shape) if hasattr(value, "shape") else value


# --- formulas: a multiplication with an addition counts twice -------------------------------------


@register_flop_formula([aten.mm, aten.bmm])
def _product(a: Any, b: Any, *_: Any, out_shape: Any = None) -> int:
    return 2 * math.prod(out_shape) * a[-1]


@register_flop_formula([aten.addmm, aten.baddbmm])
def _sum_and_product(_: Any, a: Any, b: Any, *rest: Any, out_shape: Any = None) -> int:
    return 2 * math.prod(out_shape) * a[-1]


@register_flop_formula(aten.convolution)
def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    *_: Any, out_shape: Any = None,
) -> int:  # fmt: skip
    return 2 * math.prod(x if transposed else out_shape) * math.prod(weight[1:])


@register_flop_formula(aten.convolution_backward)
def _convolution_backward(
    a: Any, b: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Any, *_: Any, out_shape: Any = None,
) -> int:  # fmt: skip
    if output_mask[1]:
        return 2 * math.prod(b) * math.prod(out_shape[1:])  # of the weight, from x and a cotangent
    return _convolution(a, b, bias, stride, padding, dilation, transposed, out_shape=out_shape)


def _scores(query: Any, key: Any) -> int:
    """How many products of two numbers a matrix of scores takes."""
    return math.prod(query) * int(key[-2])


@register_flop_formula(
    [aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_cudnn_attention]
)
def _attention(query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None) -> int:
    return 2 * (_scores(query, key) + math.prod(query[:-1]) * key[-2] * value[-1])


@register_flop_formula(
    [
        aten._scaled_dot_product_flash_attention_backward,
        aten._scaled_dot_product_cudnn_attention_backward,
    ]
)
def _attention_backward(
    g: Any, query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None
) -> int:
    by_values = math.prod(query[:-1]) * key[-2] * value[-1]
    return 2 * (3 * _scores(query, key) + 2 * by_values)  # scores again, and four gradients


BIASED = ("addmm", "baddbmm")  # whose first operand joins elsewhere

# --- counting -------------------------------------------------------------------------------------


class FlopCounterMode:
    """Count the operations of products, convolutions and attention inside a ``with``.

    What is elementwise or a sum counts nothing, as in PyTorch.

    Parameters
    ----------
    mods : Module or list of Module, optional
        Accepted: modules are found as they run.
    depth : int
        How deep modules are shown by `get_table`.
    display : bool
        Whether the table is printed at the end.
    custom_mapping : dict, optional
        Packets of ops, and functions that count theirs: see `register_flop_formula`.

    Examples
    --------
    >>> import lucid_gpu
    >>> from lucid_gpu.utils.flop_counter import FlopCounterMode
    >>> model = lucid_gpu.nn.Linear(4, 8)
    >>> with FlopCounterMode(display=False) as counter:
    ...     y = model(lucid_gpu.ones(2, 4))
    >>> counter.get_total_flops()
    128
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        mapping = custom_mapping or {}
        self.flop_registry = {**flop_registry, **{op: _told(f) for op, f in mapping.items()}}
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        # Modules that run, and calls that have ended, by the numbers of the nodes recorded inside.
        self._running: list[tuple[str, int]] = []
        self._recorded: list[tuple[str, int, int]] = []
        self._node: Any = None
        self._blocks = contextlib.ExitStack()

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._running.clear()
        self._recorded.clear()
        before = register_module_forward_pre_hook(self._begin)
        after = register_module_forward_hook(self._end, always_call=True)
        self._blocks.callback(before.remove)
        self._blocks.callback(after.remove)
        self._blocks.enter_context(Watch(NAMES, lambda: self._see))
        self._blocks.enter_context(costly.watching(self._count))
        return self

    def __exit__(self, *error: Any) -> None:
        self._blocks.close()
        if self.display:
            print(self.get_table(self.depth))

    def _see(self, op: Any, args: Any, kwargs: Any, go_on: Callable[..., Any]) -> Any:
        """Note the node that a backward pass has reached."""
        if op is not run_node:
            return go_on(*args, **kwargs)
        before, self._node = self._node, args[0]
        try:
            return go_on(*args, **kwargs)
        finally:
            self._node = before

    def _count(self, call: CostlyCall, go_on: Callable[[], Any]) -> Any:
        result = go_on()
        packet = getattr(aten, call.name) if call.op is None else call.op
        formula = self.flop_registry.get(packet)
        if formula is None or result is None:
            return result
        bias = (None,) if call.name in BIASED else ()
        operands = (*bias, *call.arrays)
        count = formula(*operands, *call.settings, out_val=result)
        for name in {"Global", *self._owners(call)}:
            self.flop_counts[name][packet] += count
        return result

    def _owners(self, call: CostlyCall) -> Iterator[str]:
        """The modules that a call belongs to: in backward those that recorded its node."""
        if not call.backward or self._node is None:
            yield from [name for name, _ in self._running]
            return
        number = self._node._sequence
        for name, first, last in self._recorded:
            if first < number < last:
                yield name

    def _begin(self, module: Any, args: Any) -> None:
        if module not in self._names:
            root = type(module).__name__
            for path, part in module.named_modules(prefix=root):
                self._names.setdefault(part, path)
        self._running.append((self._names[module], Node()._sequence))

    def _end(self, module: Any, args: Any, result: Any) -> None:
        name, first = self._running.pop()
        self._recorded.append((name, first, Node()._sequence))

    def get_total_flops(self) -> int:
        """All operations counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By module, "Global" for all, the operations of each op."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table, with modules as deep as ``depth``."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name in ["Global", *sorted(self.flop_counts.keys() - {"Global"})]:
            level = 0 if name == "Global" else name.count(".") + 1
            if depth is not None and level > depth:
                continue
            counts, indent = self.flop_counts[name], " " * level
            rows.append((indent + name, *_shown(sum(counts.values()), total)))
            rows += [(f"{indent} - {op!s}", *_shown(n, total)) for op, n in counts.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
        return "\n".join(
            f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}".rstrip()
            for a, b, c in rows
        )


def _shown(count: int, total: int) -> tuple[str, str]:
    """A count and its share, as a row of the table ends."""
    step = min(max(len(str(total)) - 1, 0) // 3, 5)
    number = f"{count / 1000**step:.3f}{' KMBTP'[step]}" if step else str(count)
    return number, f"{100 * count / total if total else 0:.2f}%"
