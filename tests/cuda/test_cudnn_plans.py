"""What lucid_gpu asks of cuDNN, asked of cuDNN itself: plans are built for a GPU that is not there.

Needed are nvidia-cudnn-frontend, libcudnn 9.8 or newer, and a libcuda.so.1 to load: no GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import re
import types
from pathlib import Path
from typing import Any

import pytest

from lucid_gpu.devices import cudnn as by_cudnn
from lucid_gpu.kernels.windows import Frame, Window

GPU = {  # an H200's properties, as cuDNN writes them
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 12090, "cudaDeviceId": 0,
    "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "multiProcessorCount": 132,
    "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "oversizedSharedMemoryPerBlock": 0, "totalGlobalMem": 150000000000, "l2CacheSize": 62914560,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144,
}  # fmt: skip
CASES = {  # images, filters, window
    "images": ((8, 16, 28, 28), (32, 16, 3, 3), Window((3, 3), padding=(1, 1))),
    "one more behind": ((2, 3, 7, 8), (5, 3, 2, 2), Window((2, 2), beyond=(1, 1))),
    "pixels left over": ((6, 2, 8, 9), (3, 2, 3, 3), Window((3, 3), (3, 3))),
    "each channel alone": ((8, 16, 28, 28), (16, 1, 3, 3), Window((3, 3), (2, 2), (1, 1))),
    "dilated groups": ((8, 16, 9, 9), (32, 4, 3, 3), Window((3, 3), (1, 1), (2, 2), (2, 2))),
    "signals": ((8, 16, 1, 100), (32, 16, 1, 5), Window((1, 5), (1, 2), (0, 2))),
    "volumes": (
        (2, 8, 8, 8, 8),
        (16, 4, 3, 3, 3),
        Window((3, 3, 3), (2, 1, 1), (1, 0, 1), (1, 1, 1), (0, 0, 0)),
    ),
}


@functools.cache
def package() -> Any:
    """The real package, whose graphs are for `GPU`; a skip where it cannot be used."""
    cudnn = by_cudnn.library()
    if cudnn is None or not hasattr(cudnn, "create_device_properties"):
        pytest.skip("nvidia-cudnn-frontend and libcudnn are not installed")
    try:
        properties = cudnn.create_device_properties(json.dumps(GPU))
    except RuntimeError as error:
        pytest.skip(f"cuDNN plans for no GPU that is elsewhere: {error}")
    more: dict[str, Any] = {"device_property": properties, "sm_version": 90}

    def pygraph(**how: Any) -> Any:
        return cudnn.pygraph(**how, **more)

    return types.SimpleNamespace(**{**vars(cudnn), "pygraph": pygraph})


@pytest.mark.parametrize("kind", by_cudnn.TYPES)
@pytest.mark.parametrize("case", CASES)
def test_every_op_has_a_deterministic_plan(case: str, kind: str) -> None:
    cudnn = package()
    images, filters, window = CASES[case]
    results = (images[0], filters[0], *Frame(images, window).steps)
    shapes = {
        "conv_fprop": (images, filters, results),
        "conv_dgrad": (results, filters, images),
        "conv_wgrad": (images, results, filters),
    }
    notes = by_cudnn.Settings().left_out(kind)
    for op, last in itertools.product(shapes, (False, True)):
        layouts = list(zip(shapes[op], (last, False, False)))
        graph = by_cudnn.described(cudnn, None, op, layouts, kind, window, notes)
        plans = list(by_cudnn.buildable(cudnn, graph))
        assert plans, (op, last)
        for index in (plans[0], plans[-1]):  # what is built last is what is run
            graph.build_plan_at_index(index)
            size = graph.get_workspace_size()
            assert size == graph.get_workspace_size_plan_at_index(index)
            assert 0 <= size <= by_cudnn.WORKSPACE


ATTENTION = {  # queries, keys, values, and whether heads lie inside rows
    "of one length": ((2, 4, 128, 64), (2, 4, 128, 64), (2, 4, 128, 64), False),
    "of two lengths": ((2, 2, 33, 8), (2, 2, 70, 8), (2, 2, 70, 8), True),
    "groups of heads": ((2, 8, 64, 128), (2, 2, 64, 128), (2, 2, 64, 128), True),
    "wider values": ((1, 2, 70, 32), (1, 2, 40, 32), (1, 2, 40, 64), False),
}


def attention(op: str, case: str, kind: str, causal: bool, trained: bool = True) -> Any:
    """What `attend` plans a case for."""
    q, k, v, inside = ATTENTION[case]
    layouts = []
    for batch, heads, rows, columns in (q, k, v, (*q[:3], v[3])):
        step = heads * columns
        strides = (columns, step) if inside else (rows * columns, columns)
        layouts.append(((batch, heads, rows, columns), (rows * step, *strides, 1)))
    sums = ((*q[:3], 1), (q[1] * q[2], q[2], 1, 1))
    if op == "sdpa_backward":
        layouts += [layouts[3], sums, *layouts[:3]]
    elif trained:
        layouts.append(sums)
    return by_cudnn._Attention(op, kind, tuple(layouts), 0.2, causal, True)


@functools.cache
def package_with_attention() -> Any:
    """The real package where it plans the plainest attention; a skip where it cannot here."""
    cudnn = package()
    key = attention("sdpa", "of one length", "bfloat16", False)
    try:
        next(by_cudnn.buildable(cudnn, by_cudnn.attention_described(cudnn, None, key)))
    except (cudnn.cudnnGraphNotSupportedError, StopIteration) as error:
        reason = str(error).partition("\n")[0]
        pytest.skip(f"cuDNN finds no functions for attention in this libcuda.so.1: {reason}")
    return cudnn


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_and_its_gradient_have_a_plan(case: str, kind: str, causal: bool) -> None:
    cudnn = package_with_attention()
    for op, trained in (("sdpa", False), ("sdpa", True), ("sdpa_backward", True)):
        key = attention(op, case, kind, causal, trained)
        graph = by_cudnn.attention_described(cudnn, None, key)
        next(by_cudnn.buildable(cudnn, graph))
        assert graph.get_workspace_size() >= 0


def test_notes_leave_engines_out() -> None:
    cudnn = package()
    layouts = [(shape, False) for shape in ((8, 16, 28, 28), (8, 32, 26, 26), (32, 16, 3, 3))]

    def count(*notes: str) -> int:
        graph = by_cudnn.described(
            cudnn, None, "conv_wgrad", layouts, "float32", Window((3, 3)), notes
        )
        return len(list(by_cudnn.buildable(cudnn, graph)))

    assert count("NONDETERMINISTIC", "TENSOR_CORE") < count("NONDETERMINISTIC") < count()


def test_float64_has_none_or_few() -> None:
    """Why float64 is left to matrix products; when this fails, it need no longer be."""
    cudnn = package()
    shapes = (8, 16, 28, 28), (32, 16, 3, 3), (8, 32, 26, 26)
    by_cudnn.TYPES["float64"] = "DOUBLE"
    try:
        with pytest.raises(cudnn.cudnnGraphNotSupportedError):
            layouts = [(shape, False) for shape in shapes]
            window = Window((3, 3))
            by_cudnn.described(cudnn, None, "conv_fprop", layouts, "float64", window, ())
    finally:
        del by_cudnn.TYPES["float64"]


def test_a_launch_takes_addresses() -> None:
    """All that is missing here is the handle."""
    cudnn = package()
    shapes = (2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)
    layouts = [(shape, False) for shape in shapes]
    graph = by_cudnn.described(cudnn, None, "conv_fprop", layouts, "bfloat16", Window((3, 3)), ())
    next(by_cudnn.buildable(cudnn, graph))
    with pytest.raises(RuntimeError, match="handle"):
        graph.execute({1: 4096, 2: 8192, 3: 12288}, 16384, handle=None)


def test_what_stands_in_for_it_has_its_names() -> None:
    if importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    cudnn = package()
    path = Path(__file__).parents[1] / "standin" / "frontend" / "cudnn" / "__init__.py"
    text = path.read_text()
    top = re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", text, re.MULTILINE)
    assert len(top) > 6 and [name for name in top if not hasattr(cudnn, name)] == []
    body = text[text.index("class pygraph") :]
    methods = re.findall(r"^    def ([a-zA-Z]\w*)", body, re.MULTILINE)
    real = by_cudnn.library().pygraph
    assert len(methods) > 10 and [name for name in methods if not hasattr(real, name)] == []
    for name in ("data_type", "heur_mode", "numerical_note"):
        listed = text.index(f'"{name}"')
        members = re.findall(r'"(\w+)"', text[listed : text.index(")", listed)])[1:]
        assert members and [m for m in members if not hasattr(getattr(cudnn, name), m)] == []
