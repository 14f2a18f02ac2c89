"""A stand-in for nvidia-cudnn-frontend: graphs of one op, carried out by NumPy.

The ops are convolutions and attention.

It takes the streams and addresses of the stand-in for CuPy, and lies in a folder of its own: only
tests that ask for it find it. `_graphs` holds the graphs made so far, `_ran` the op and engine of
each launch, and `_engines` what engines there are: by name, their numeric notes.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy
from cupy.cuda import runtime, stream

__version__ = "1.28.0"


class cudnnGraphNotSupportedError(RuntimeError):
    pass


data_type = enum.Enum("data_type", ["NOT_SET", "FLOAT", "HALF", "BFLOAT16", "DOUBLE"])
heur_mode = enum.Enum("heur_mode", ["A", "B", "FALLBACK"])
numerical_note = enum.Enum(
    "numerical_note",
    [
        "TENSOR_CORE",
        "DOWN_CONVERT_INPUTS",
        "REDUCED_PRECISION_REDUCTION",
        "NONDETERMINISTIC",
        "WINOGRAD",
    ],
)
_NUMPY = {
    data_type.FLOAT: numpy.dtype("f"),
    data_type.HALF: numpy.dtype("e"),
    data_type.BFLOAT16: numpy.dtype(ml_dtypes.bfloat16),
}
_engines: dict[str, set[numerical_note]] = {
    "halves": {numerical_note.REDUCED_PRECISION_REDUCTION, numerical_note.TENSOR_CORE},
    "atomics": {numerical_note.NONDETERMINISTIC},
    "tf32": {numerical_note.TENSOR_CORE, numerical_note.DOWN_CONVERT_INPUTS},
    "tiles": set(),
    "winograd": {numerical_note.WINOGRAD},
}
_graphs: list[pygraph] = []
_ran: list[tuple[str, str]] = []
_handles: dict[int, list[int]] = {}  # device and stream
_numbers = itertools.count(0x7000)


def backend_version() -> int:
    return 92800


def create_handle() -> int:
    handle = next(_numbers)
    _handles[handle] = [runtime.getDevice(), 0]
    return handle


def destroy_handle(handle: int) -> None:
    del _handles[handle]


def set_stream(handle: int, stream: int) -> None:
    assert _handles[handle][0] == runtime.getDevice()
    _handles[handle][1] = stream


class tensor:
    def __init__(
        self, dim: Any = None, stride: Any = None, data_type: Any = None, uid: int = -1
    ) -> None:
        self._dim, self._stride, self._type, self._uid = dim, stride, data_type, uid
        self._output = False

    def set_uid(self, uid: int) -> tensor:
        self._uid = uid
        return self

    def set_output(self, is_output: bool) -> tensor:
        self._output = is_output
        return self

    def set_data_type(self, data_type: Any) -> tensor:
        self._type = data_type
        return self

    def set_dim(self, dim: list[int]) -> tensor:
        self._dim = dim
        return self

    def set_stride(self, stride: list[int]) -> tensor:
        self._stride = stride
        return self

    def _at(self, address: int) -> Any:
        """Its elements, as they lie at an address."""
        assert address % 16 == 0, "misaligned"
        kind = _NUMPY[self._type]
        span = 1 + sum((n - 1) * step for n, step in zip(self._dim, self._stride))
        memory = (ctypes.c_char * (span * kind.itemsize)).from_address(address)
        steps = [step * kind.itemsize for step in self._stride]
        return numpy.lib.stride_tricks.as_strided(numpy.frombuffer(memory, kind), self._dim, steps)


class pygraph:
    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = data_type.NOT_SET,
        intermediate_data_type: Any = data_type.NOT_SET,
        compute_data_type: Any = data_type.NOT_SET,
        handle: Any = None,
    ) -> None:
        assert handle in _handles and compute_data_type is data_type.FLOAT
        self._handle, self._type = handle, io_data_type
        self._left_out: set[Any] = set()
        self._most = math.inf
        self._steps: list[str] = []
        self._plan: int | None = None
        _graphs.append(self)

    def tensor(
        self, dim: list[int], stride: list[int], data_type: Any = data_type.NOT_SET, uid: int = -1
    ) -> tensor:
        assert min(dim) > 0 and min(stride) > 0 and 4 <= len(dim) <= 5
        return tensor(dim, stride, data_type, uid)

    def _convolution(self, op: str, a: tensor, b: tensor, *numbers: list[int]) -> tensor:
        assert not self._steps and all(len(n) == len(a._dim) - 2 for n in numbers)
        self._op, self._numbers, self._result = op, numbers, tensor()
        self._operands = a, b, self._result
        return self._result

    def conv_fprop(
        self,
        image: tensor,
        weight: tensor,
        pre_padding: list[int],
        post_padding: list[int],
        stride: list[int],
        dilation: list[int],
    ) -> tensor:
        return self._convolution(
            "conv_fprop", image, weight, pre_padding, post_padding, stride, dilation
        )

    def conv_dgrad(
        self,
        loss: tensor,
        filter: tensor,
        pre_padding: list[int],
        post_padding: list[int],
        stride: list[int],
        dilation: list[int],
    ) -> tensor:
        return self._convolution(
            "conv_dgrad", loss, filter, pre_padding, post_padding, stride, dilation
        )

    def conv_wgrad(
        self,
        image: tensor,
        loss: tensor,
        pre_padding: list[int],
        post_padding: list[int],
        stride: list[int],
        dilation: list[int],
    ) -> tensor:
        return self._convolution(
            "conv_wgrad", image, loss, pre_padding, post_padding, stride, dilation
        )

    def sdpa(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        attn_scale: Any = None,
        use_causal_mask: bool = False,
        generate_stats: Any = None,
    ) -> list[tensor | None]:
        assert type(generate_stats) is bool, "generate_stats must be provided"
        out, stats = tensor(), tensor() if generate_stats else None
        results = [out] if stats is None else [out, stats]
        self._attention("sdpa", (q, k, v, *results), attn_scale, use_causal_mask)
        return [out, stats]

    def sdpa_backward(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        o: tensor,
        dO: tensor,
        stats: tensor,
        attn_scale: Any = None,
        use_causal_mask: bool = False,
        use_deterministic_algorithm: bool = False,
    ) -> list[tensor]:
        self._deterministic = use_deterministic_algorithm
        results = [tensor() for _ in range(3)]
        operands = (q, k, v, o, dO, stats, *results)
        self._attention("sdpa_backward", operands, attn_scale, use_causal_mask)
        return results

    def _attention(self, op: str, operands: Any, scale: Any, causal: bool) -> None:
        assert not self._steps and type(scale) is float and type(causal) is bool
        self._op, self._operands, self._numbers = op, operands, (scale, causal)

    def _validate_attention(self) -> None:
        """What the frontend and cuDNN ask of shapes, types and strides."""
        backward = self._op == "sdpa_backward"
        count = len(self._operands)
        assert len({id(t) for t in self._operands}) == count
        assert [t._uid for t in self._operands] == list(range(1, count + 1))
        assert all(t._output for t in self._operands[6 if backward else 3 :])
        q, k, v, o, *more = self._operands
        dims = [t._dim for t in self._operands]
        (batch, heads, rows, wide), (_, groups, keys, _), (*_, columns) = dims[:3]
        assert dims[1:3] == [[batch, groups, keys, wide], [batch, groups, keys, columns]]
        assert heads % groups == 0 and wide % 8 == columns % 8 == 0 and max(wide, columns) <= 128
        assert dims[3] == [batch, heads, rows, columns]
        sums = more[backward:][:1]
        assert [t._dim for t in sums] in ([], [[batch, heads, rows, 1]])
        for t in self._operands:
            assert t._stride[3] == 1 and t._type is (data_type.FLOAT if t in sums else self._type)
            assert t in sums or all(step % 8 == 0 for step in t._stride[:3])
        if backward:
            assert dims[4] == dims[3] and dims[6:] == dims[:3] and more[0]._stride == o._stride
            if rows == keys == 1:
                raise cudnnGraphNotSupportedError("s_q = s_kv = 1 is not supported.")

    def _follow(self, step: str, *before: str) -> None:
        assert self._steps == list(before), f"{step} after {self._steps}"
        self._steps.append(step)

    def validate(self) -> None:
        self._follow("validate")
        if self._op.startswith("sdpa"):
            self._validate_attention()
            return
        assert [t._uid for t in self._operands] == [1, 2, 3] and self._result._output
        assert {t._type for t in self._operands} == {self._type}
        x, w, y = self._sorted()
        pre, post, stride, dilation = self._numbers
        rows = zip(x[2:], w[2:], pre, post, stride, dilation)
        assert y == [
            x[0],
            w[0],
            *[(n + p + q - d * (k - 1) - 1) // s + 1 for n, k, p, q, s, d in rows],
        ]
        assert x[1] % w[1] == 0 and w[0] % (x[1] // w[1]) == 0

    def _sorted(self, of: Any = None) -> tuple[Any, Any, Any]:
        """Images, filters and results, or what is given in the order of operands."""
        a, b, c = [t._dim for t in self._operands] if of is None else of
        return {"conv_fprop": (a, b, c), "conv_dgrad": (c, b, a), "conv_wgrad": (a, c, b)}[self._op]

    def build_operation_graph(self) -> None:
        self._follow("build_operation_graph", "validate")

    def create_execution_plans(self, heuristics: Sequence[Any]) -> None:
        self._follow("create_execution_plans", "validate", "build_operation_graph")
        assert list(heuristics) == [heur_mode.A, heur_mode.FALLBACK]
        if not _engines:
            raise cudnnGraphNotSupportedError("No valid engine configs")

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> pygraph:
        assert "create_execution_plans" in self._steps, "there is nothing yet to leave out"
        self._left_out |= set(notes)
        return self

    def deselect_workspace_greater_than(self, workspace_limit: int) -> pygraph:
        self._most = workspace_limit
        return self

    def get_execution_plan_count(self) -> int:
        return len(_engines)

    def build_plan_at_index(self, index: int) -> None:
        if list(_engines.values())[index] & self._left_out:
            raise cudnnGraphNotSupportedError("Deselecting execution plan")
        self._plan = index

    def get_workspace_size(self) -> int:
        assert self._plan is not None
        return 100 * self._plan

    def execute(
        self, tensor_dict: dict[int, int], workspace: Any = None, handle: Any = None
    ) -> None:
        assert set(tensor_dict) == {t._uid for t in self._operands}
        assert type(workspace) is int and workspace
        assert handle == self._handle and _handles[handle][0] == runtime.getDevice()
        _ran.append((self._op, list(_engines)[self._plan]))
        arrays = [t._at(tensor_dict[t._uid]) for t in self._operands]
        size = self.get_workspace_size()

        def work() -> None:
            ctypes.memset(workspace, 0xEE, size)
            if self._op.startswith("sdpa"):
                _attend(arrays, *self._numbers)
            else:
                _carry_out(self._op, self._sorted(arrays), *self._numbers)

        stream._submit(work, _handles[handle][1])


def _carry_out(op: str, arrays: Any, pre: Any, post: Any, stride: Any, dilation: Any) -> None:
    """A convolution or a gradient, place after place of the filter."""
    x, w, y = arrays
    groups = x.shape[1] // w.shape[1]
    edges = [(0, 0), (0, 0), *zip(pre, post)]
    out = arrays[{"conv_fprop": 2, "conv_dgrad": 0, "conv_wgrad": 1}[op]]
    wide = [numpy.zeros(a.shape, "f") if a is out else a.astype("f", "C") for a in arrays]
    image, filters, result = wide
    image = numpy.pad(image, edges)
    by_group = [
        a.reshape(*a.shape[:axis], groups, a.shape[axis] // groups, *a.shape[axis + 1 :])
        for a, axis in ((image, 1), (filters, 0), (result, 1))
    ]
    image_of, filters_of, result_of = by_group
    for place in numpy.ndindex(*w.shape[2:]):
        ends = zip(place, dilation, stride, y.shape[2:])
        seen = (..., *[slice(i * d, i * d + s * (m - 1) + 1, s) for i, d, s, m in ends])
        at = (..., *place)
        if op == "conv_fprop":
            result_of += numpy.einsum("ngc...,goc->ngo...", image_of[seen], filters_of[at])
        elif op == "conv_dgrad":
            image_of[seen] += numpy.einsum("ngo...,goc->ngc...", result_of, filters_of[at])
        else:
            filters_of[at] = numpy.einsum("ngcp,ngop->goc", _flat(image_of[seen]), _flat(result_of))
    inside = (..., *[slice(p, p + n) for p, n in zip(pre, x.shape[2:])])
    found = {"conv_fprop": result, "conv_dgrad": image[inside], "conv_wgrad": filters}[op]
    out[...] = found.astype(out.dtype)


def _flat(a: Any) -> Any:
    return a.reshape(*a.shape[:3], -1)


def _attend(arrays: Any, scale: float, causal: bool) -> None:
    """Attention, of four arrays or five, or its gradient, of nine."""
    q, k, v, out, *more = arrays
    batch, heads, rows, columns = out.shape
    repeats = heads // k.shape[1]
    wide = [a.astype("f") for a in (q, k, v)]
    wide[1:] = [numpy.repeat(a, repeats, 1) for a in wide[1:]]
    scores = wide[0] @ wide[1].swapaxes(2, 3) * numpy.float32(scale)
    if causal:
        seen = numpy.tri(*scores.shape[2:], dtype=bool)
        scores = numpy.where(seen, scores, numpy.float32(-numpy.inf))
    top = scores.max(3, keepdims=True)
    sums = numpy.log(numpy.exp(scores - top).sum(3, keepdims=True)) + top
    if len(more) < 2:
        out[...] = (numpy.exp(scores - sums) @ wide[2]).astype(out.dtype)
        for array in more:
            array[...] = sums
        return
    g, kept, dq, dk, dv = more
    weights = numpy.exp(scores - kept)  # of what was saved, so that it matters
    wide_g = g.astype("f")
    slope = wide_g @ wide[2].swapaxes(2, 3)
    delta = (wide_g * out.astype("f")).sum(3, keepdims=True)
    slope = weights * (slope - delta) * numpy.float32(scale)
    dq[...] = (slope @ wide[1]).astype(dq.dtype)
    for array, part in (
        (dk, slope.swapaxes(2, 3) @ wide[0]),
        (dv, weights.swapaxes(2, 3) @ wide_g),
    ):
        by_group = part.reshape(batch, k.shape[1], repeats, *part.shape[2:])
        array[...] = by_group.sum(2).astype(array.dtype)
