"""A stand-in for nvidia-cudnn-frontend: graphs of one convolution, carried out by NumPy.

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

    def _follow(self, step: str, *before: str) -> None:
        assert self._steps == list(before), f"{step} after {self._steps}"
        self._steps.append(step)

    def validate(self) -> None:
        self._follow("validate")
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
        assert set(tensor_dict) == {1, 2, 3} and type(workspace) is int and workspace
        assert handle == self._handle and _handles[handle][0] == runtime.getDevice()
        _ran.append((self._op, list(_engines)[self._plan]))
        arrays = [t._at(tensor_dict[t._uid]) for t in self._operands]
        size = self.get_workspace_size()

        def work() -> None:
            ctypes.memset(workspace, 0xEE, size)
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
