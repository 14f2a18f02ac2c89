"""Convolutions and attention by cuDNN, where nvidia-cudnn-frontend and nvidia-cudnn are installed.

A convolution, its gradient by images and that by filters are graphs of one operation each. cuDNN
lists engines for a graph, the most promising first; engines that would change results more than
the settings allow are left out, and the first of the others that can be built is kept for these
shapes, layouts, types and settings. Where none is left the caller computes it otherwise.

Left out are engines that add in an order that changes from run to run, unless `settings` says they
may; those that add in 16 bits; and those that round float32, unless TF32 is allowed.

Attention and its gradient, which `attend` launches, are graphs of one operation each, too. They are
used only where a program asks for them.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices import installing
from lucid_gpu.devices.precision import matmul as precision

__all__ = ["NoEngine", "attend", "convolve", "in_use", "install", "library", "settings"]


def install() -> str:
    """The command that installs it."""
    return installing.command(installing.extra("cudnn"))


OPERANDS = {  # by the graph's method
    "conv_fprop": ("image", "weight"),
    "conv_dgrad": ("loss", "filter"),
    "conv_wgrad": ("image", "loss"),
}
TYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}  # few engines take DOUBLE
ALIGNMENT = 16  # bytes, which the frontend tells cuDNN of every address
WORKSPACE = 1 << 30  # bytes an engine may ask for
KEPT = 1024  # graphs a thread keeps for a device
FLAGS = ("enabled", "benchmark", "deterministic", "allow_tf32")


class Settings:
    """What ``backends.cudnn`` says.

    Attributes
    ----------
    enabled : bool
    benchmark : bool
        Time the first engines of a graph, and keep the fastest one.
    benchmark_limit : int
        How many; 0 for all.
    deterministic : bool
        Take only engines that give the same bits for the same input. On; PyTorch's is off.
    allow_tf32 : bool
        Let engines round float32, if matrix products may (`precision.matmul`).
    """

    __slots__ = (*FLAGS, "benchmark_limit", "required")

    def __init__(self) -> None:
        self.enabled = self.deterministic = self.allow_tf32 = True
        self.benchmark = False
        self.benchmark_limit = 10
        self.required = False  # use_deterministic_algorithms

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FLAGS and not isinstance(value, bool):
            raise RuntimeError(f"set_{name}_cudnn expects a bool, but got {type(value).__name__}")
        object.__setattr__(self, name, value)

    def left_out(self, kind: str) -> tuple[str, ...]:
        """Which engines are not taken for a type, by cuDNN's notes on them."""
        notes = ["REDUCED_PRECISION_REDUCTION"]
        if self.deterministic or self.required:
            notes.append("NONDETERMINISTIC")
        if kind == "float32" and not (self.allow_tf32 and precision.allow_tf32):
            notes += ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"]
        return tuple(notes)


settings = Settings()


@functools.cache
def library() -> Any:
    """The package cudnn, or None where it or libcudnn is missing."""
    if importlib.util.find_spec("cudnn") is None:
        return None
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            "nvidia-cudnn-frontend is installed, but cuDNN cannot be loaded "
            f"({error}): convolutions are computed by cuBLAS. On a machine with an NVIDIA GPU: "
            f"{install()}",
            stacklevel=2,
        )
        return None
    return cudnn


def in_use(kind: str) -> bool:
    """Whether convolutions of a type are given to cuDNN."""
    return settings.enabled and kind in TYPES and library() is not None


def is_missed(kind: str) -> bool:
    """Whether convolutions of a type would be given to it, were it installed."""
    return settings.enabled and kind in TYPES and library() is None


def convolve(xp: Any, op: str, kind: str, a: Any, b: Any, shape: Sequence[int], window: Any) -> Any:
    """A convolution, or one of its gradients, on the current device and stream.

    Parameters
    ----------
    xp : module
        CuPy.
    op : {"conv_fprop", "conv_dgrad", "conv_wgrad"}
    kind : str
        The arrays' type, one of `TYPES`.
    a, b : array
        `OPERANDS` of the op: images (n, c, ...), filters (o, c // groups, ...) or what belongs to
        results (n, o, ...), with two axes or three behind. Row-major arrays and those whose
        channels are innermost are read as they lie.
    shape : sequence of int
        Of the result.
    window
        ``stride``, ``padding``, ``dilation``, and how much more padding is ``beyond``.

    Returns
    -------
    array, row-major; None where cuDNN has no engine for it
    """
    sizes = a.size, b.size, math.prod(shape)
    if min(sizes) == 0 or max(sizes) >= 2**31:  # nothing to compute; indices are 32 bits wide
        return None
    a, a_last = _taken(a)
    b, b_last = _taken(b)
    here = _here(xp.cuda.runtime.getDevice())
    layouts = (a.shape, a_last), (b.shape, b_last), (tuple(shape), False)
    key = op, layouts, kind, window, settings.left_out(kind), settings.benchmark
    graph = here.graphs.get(key, here)
    if graph is None:
        return None
    out = xp.empty(shape, a.dtype)
    run = functools.partial(here.run, xp, (a, b, out))
    if graph is here:
        graph = _planned(xp, here, key, run)
        here.keep(key, graph)
        if graph is None:
            return None
    run(graph)
    return out


def _taken(array: Any) -> tuple[Any, bool]:
    """An array cuDNN reads, the same or a copy, and whether its channels are innermost."""
    if array.data.ptr % ALIGNMENT == 0:
        if array.flags.c_contiguous:
            return array, False
        if array.transpose(_order(array.ndim, True)).flags.c_contiguous:
            return array, True
    return array.copy(), False


def _order(rank: int, channels_last: bool) -> tuple[int, ...]:
    """The axes as they lie in memory."""
    return (0, *range(2, rank), 1) if channels_last else tuple(range(rank))


def _strides(shape: Sequence[int], channels_last: bool) -> list[int]:
    """The strides of a layout, in elements: those of axes of length 1 too."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(_order(len(shape), channels_last)):
        strides[axis] = step
        step *= shape[axis]
    return strides


# --- handles and graphs: cuDNN's are a thread's own -----------------------------------------------


class _Here:
    """One thread's cuDNN on one device."""

    def __init__(self) -> None:
        cudnn = library()
        self.set_stream, self.handle = cudnn.set_stream, cudnn.create_handle()
        self.graphs: dict[Any, Any] = {}
        weakref.finalize(self, cudnn.destroy_handle, self.handle).atexit = False

    def keep(self, key: Any, graph: Any) -> None:
        """Have a graph, or why there is none, for the next call; the oldest goes."""
        self.graphs[key] = graph
        if len(self.graphs) > KEPT:
            del self.graphs[next(iter(self.graphs))]

    def run(self, xp: Any, arrays: Sequence[Any], graph: Any) -> None:
        """Launch a graph's plan, its workspace from the pool of the current stream."""
        self.set_stream(self.handle, xp.cuda.get_current_stream().ptr)
        memory = xp.cuda.alloc(max(graph.get_workspace_size(), 1))
        pointers = {uid: array.data.ptr for uid, array in enumerate(arrays, 1)}
        graph.execute(pointers, memory.ptr, handle=self.handle)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.devices: dict[int, _Here] = {}


_thread = _Thread()


def _here(device: int) -> _Here:
    here = _thread.devices.get(device)
    if here is None:
        here = _thread.devices[device] = _Here()
    return here


def _planned(xp: Any, here: _Here, key: tuple[Any, ...], run: Any) -> Any:
    """A graph with the plan that `run` is to launch; None, and a warning, where there is none."""
    cudnn = library()
    op, layouts, kind, window, left_out, benchmark = key
    limit = (settings.benchmark_limit or None) if benchmark else 1
    try:
        graph = described(cudnn, here.handle, op, layouts, kind, window, left_out)
        plans = list(itertools.islice(buildable(cudnn, graph), limit))
    except cudnn.cudnnGraphNotSupportedError:
        plans = []
    if not plans:
        shapes = " and ".join(str(list(shape)) for shape, _ in layouts[:2])
        warnings.warn(
            f"cuDNN has no engine for {op} of {kind}{shapes} without {', '.join(left_out)}: it is "
            "computed by cuBLAS",
            stacklevel=2,
        )
        return None
    if len(plans) > 1:

        def time(index: int) -> float:
            graph.build_plan_at_index(index)  # which selects it
            return _time(xp, lambda: run(graph))

        graph.build_plan_at_index(min(plans, key=time))
    return graph


def described(
    cudnn: Any,
    handle: Any,
    op: str,
    layouts: Sequence[tuple[Sequence[int], bool]],
    kind: str,
    window: Any,
    left_out: Sequence[str],
) -> Any:
    """The graph of one operation, its engines listed and sifted.

    Raises
    ------
    cudnn.cudnnGraphNotSupportedError
        If cuDNN lists none.
    """
    data, single = getattr(cudnn.data_type, TYPES[kind]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=data,
        intermediate_data_type=single,
        compute_data_type=single,
        handle=handle,
    )
    operands = {
        name: graph.tensor(dim=list(shape), stride=_strides(shape, last), data_type=data, uid=uid)
        for uid, (name, (shape, last)) in enumerate(zip(OPERANDS[op], layouts), 1)
    }
    result = getattr(graph, op)(
        **operands,
        pre_padding=list(window.padding),
        post_padding=[p + more for p, more in zip(window.padding, window.beyond)],
        stride=list(window.stride),
        dilation=list(window.dilation),
    )
    shape, last = layouts[2]
    result.set_uid(3).set_output(True).set_data_type(data)
    result.set_dim(list(shape)).set_stride(_strides(shape, last))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, note) for note in left_out])
    graph.deselect_workspace_greater_than(WORKSPACE)
    return graph


def buildable(cudnn: Any, graph: Any) -> Iterator[int]:
    """The plans of a graph that can be built, each built and selected when it is given."""
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
        except cudnn.cudnnGraphNotSupportedError:  # left out, or not for this size or GPU
            continue
        yield index


# --- attention ------------------------------------------------------------------------------------


class NoEngine(RuntimeError):
    """Why cuDNN does not compute an attention, as the end of a sentence."""


class _Attention(NamedTuple):
    """What a graph of attention is made for: its operation, types, layouts and numbers."""

    op: str
    kind: str
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # shape, and strides in elements
    scale: float
    causal: bool
    deterministic: bool


def attend(xp: Any, op: str, kind: str, arrays: Sequence[Any], scale: float, causal: bool) -> None:
    """Attention or its gradient, on the current device and stream.

    Parameters
    ----------
    xp : module
        CuPy.
    op : {"sdpa", "sdpa_backward"}
    kind : {"float16", "bfloat16"}
        The arrays' type; that of sums is float32.
    arrays : sequence of array
        ``q, k, v, out`` and, where the gradient is wanted later, ``sums``: the natural logarithm
        of each row's sum of exponentials, float32 of shape (batch, heads, rows, 1). Of the gradient
        ``q, k, v, out, g, sums``, which are read, and ``dq, dk, dv``. Columns lie side by side,
        other strides are multiples of `ALIGNMENT`; ``g`` lies as ``out`` does.
    scale : float
    causal : bool
        Query i sees the keys 0 to i.

    Raises
    ------
    NoEngine
        If cuDNN has none, here or, where there are sums, for the gradient. Nothing was launched.
    """
    here = _here(xp.cuda.runtime.getDevice())
    layouts = tuple([(a.shape, tuple([s // a.itemsize for s in a.strides])) for a in arrays])
    deterministic = settings.deterministic or settings.required
    key = _Attention(op, kind, layouts, scale, causal, deterministic)
    graph = here.graphs.get(key)
    if graph is None:
        graph = _attention_planned(here, key)
        if op == "sdpa" and len(arrays) == 5 and not isinstance(graph, str):
            q, k, v, out, sums = layouts
            gradient = key._replace(op="sdpa_backward", layouts=(q, k, v, out, out, sums, q, k, v))
            planned = _attention_planned(here, gradient)
            here.keep(gradient, planned)
            graph = planned if isinstance(planned, str) else graph
        here.keep(key, graph)
    if isinstance(graph, str):
        raise NoEngine(graph)
    here.run(xp, arrays, graph)


def _attention_planned(here: _Here, key: _Attention) -> Any:
    """A graph with a plan, or why there is none."""
    cudnn = library()
    shapes = ", ".join(str(list(shape)) for shape, _ in key.layouts[:3])
    reason = "none of its plans can be built"
    try:
        graph = attention_described(cudnn, here.handle, key)
        if next(buildable(cudnn, graph), None) is not None:
            return graph
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
    return f"cuDNN has no engine for {key.op} of {key.kind} {shapes}: {reason}"


def attention_described(cudnn: Any, handle: Any, key: _Attention) -> Any:
    """The graph of an attention or its gradient, its engines listed.

    Raises
    ------
    cudnn.cudnnGraphNotSupportedError
        If cuDNN lists none.
    """
    data, single = getattr(cudnn.data_type, TYPES[key.kind]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=data,
        intermediate_data_type=single,
        compute_data_type=single,
        handle=handle,
    )
    backward = key.op == "sdpa_backward"
    kinds = [data] * len(key.layouts)
    if len(key.layouts) > 4:
        kinds[5 if backward else 4] = single  # the sums
    read = 6 if backward else 3
    operands = [
        graph.tensor(dim=list(shape), stride=list(strides), data_type=kind, uid=uid)
        for uid, ((shape, strides), kind) in enumerate(zip(key.layouts[:read], kinds), 1)
    ]
    how: dict[str, Any] = {"attn_scale": key.scale, "use_causal_mask": key.causal}
    if backward:
        how["use_deterministic_algorithm"] = key.deterministic
    else:
        how["generate_stats"] = len(key.layouts) > 4
    how |= dict(zip(("q", "k", "v", "o", "dO", "stats"), operands))
    results = getattr(graph, key.op)(**how)
    written = list(zip(results, key.layouts[read:], kinds[read:]))  # the sums are None unasked
    for uid, (result, (shape, strides), kind) in enumerate(written, read + 1):
        result.set_uid(uid).set_output(True).set_data_type(kind)
        result.set_dim(list(shape)).set_stride(list(strides))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph


def _time(xp: Any, run: Any) -> float:
    """Milliseconds of three launches, after one that warms up."""
    run()
    start, end = xp.cuda.Event(), xp.cuda.Event()
    start.record()
    for _ in range(3):
        run()
    end.record()
    end.synchronize()
    return float(xp.cuda.get_elapsed_time(start, end))
