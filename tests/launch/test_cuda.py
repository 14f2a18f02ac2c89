"""Plans launched on a stand-in for CuPy: arrays in host memory, kernels compiled for the host.

It shows that pointers, numbers and sizes reach a kernel as cuLaunchKernel takes them, and nothing
about a GPU.
"""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import current_gpu
from lucid_gpu.fusion import blocked, cuda_executor
from lucid_gpu.launch import cuda, launchers, nvrtc
from lucid_gpu.launch.host import HostLauncher
from lucid_gpu.launch.source import is_cooperative
from tests.fusion.plans import agree, leaf, needs_compiler, op, planned, random


class Array(np.ndarray):
    """An array with CuPy's ``data.ptr``."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.__array_interface__["data"][0])


class StandIn:
    """What the executor uses of cupy."""

    ndarray = Array
    zeros = staticmethod(lambda size, kind: np.zeros(size, kind).view(Array))

    def __init__(self):
        self.functions, self.compiled, self.launches, self.entered = {}, [], [], []
        self.threads = set()
        driver = types.SimpleNamespace(launchKernel=self.launch, CUDADriverError=OSError)
        runtime = types.SimpleNamespace(
            CUDARuntimeError=OSError,
            getDevice=lambda: self.current,
            free=lambda _: self.threads.add(threading.get_ident()),
        )
        self.cuda = types.SimpleNamespace(
            driver=driver,
            runtime=runtime,
            Device=self.on,
            get_current_stream=lambda index: types.SimpleNamespace(
                ptr=77, is_capturing=lambda: False
            ),
        )
        self.current = 0

    def on(self, index):
        stand_in = self

        class On:
            attributes = {"MultiProcessorCount": 4, "L2CacheSize": 1 << 20}

            def __enter__(self):
                stand_in.entered.append(index)
                self.before, stand_in.current = stand_in.current, index

            def __exit__(self, *_):
                stand_in.current = self.before

        return On()

    def load(self, xp, index, text, name, options):
        assert "#include" not in text and options == nvrtc.GENERATED
        self.compiled.append(name)
        function = HostLauncher().compile(name, text, is_cooperative(text))
        number = len(self.functions) + 1
        self.functions[number] = function
        return types.SimpleNamespace(kernel=types.SimpleNamespace(ptr=number), shared_size_bytes=0)

    def launch(self, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
        assert (gz, bz, shared, stream, extra) == (1, 1, 0, 77, 0)
        assert threading.get_ident() in self.threads, "this thread has no context"
        self.launches.append((gx, gy, bx, by))
        HostLauncher().start(self.functions[f], (gx, gy, gz), (bx, by, bz), shared, params)


@pytest.fixture
def cupy(monkeypatch):
    """The executor believes that the CPU's device is a GPU."""
    stand_in = StandIn()
    backend = types.SimpleNamespace(
        xp=stand_in,
        current_index=lambda: stand_in.current,
        new=lambda shape, kind: np.empty(shape, kind).view(Array),
        address=lambda array: array.data.ptr,
        only=None,
        get_device=lambda: stand_in.current,
    )
    for module in (cuda, launchers):
        monkeypatch.setattr(module, "backend", lambda where: backend)
    monkeypatch.setattr(current_gpu, "follow_tensors", lambda cuda: None)
    monkeypatch.setattr(nvrtc, "load", stand_in.load)
    monkeypatch.setattr(cuda, "_thread", cuda._Thread())
    monkeypatch.setattr(launchers, "_launchers", {})
    return stand_in


def run(values, axes=None, index=None):
    plan, arrays, scalars = planned(values, axes)
    plan.device = device("cuda", index)
    executable = cuda_executor.Executable(plan)
    found = executable([a.view(Array) for a in arrays], scalars)
    wanted = blocked.Executable(plan)(arrays, scalars)
    for one, other in zip(found, wanted, strict=True):
        agree(one.view(np.ndarray), other)
    return executable


@needs_compiler
def test_plans_of_every_kind(cupy):
    x, y = random((64, 48), dt.float32), random((48,), dt.float16)
    run([op("mul", leaf(x), op("tanh", leaf(y))), op("add", leaf(x), 1.5)])
    run([op("mul", leaf(x.T), leaf(x.T))])
    run([op("add", leaf(x.astype(np.complex128)), 1 + 2j)])
    run([op("sub", leaf(x[:0]), leaf(y))])
    run([op("square", leaf(np.abs(x)))], (0,))
    run([op("exp", leaf(random((300_000,), dt.float32)))], (0,))
    assert cupy.launches[0] == (1, 2, 12, 21)  # 12 packs of 4 a row, 21 rows a block, 2 a thread
    assert cupy.launches[-1][:2] == (1, 33)  # of which the last block adds what all have left
    assert len(cupy.launches) == 5


@needs_compiler
def test_a_source_is_compiled_once_and_misaligned_arrays_have_their_own(cupy):
    memory = random((4097,), dt.float32)
    aligned = run([op("mul", leaf(memory[:4096].copy()), 2.0)])
    run([op("mul", leaf(memory[:128].copy()), 3.0)])
    assert cupy.compiled == ["lucid_mul_kernel"]
    aligned([memory[1:].view(Array)], [])
    assert cupy.compiled == ["lucid_mul_kernel"] * 2


@needs_compiler
def test_a_plan_runs_on_its_own_device(cupy):
    run([op("neg", leaf(random((64,), dt.float32)))], index=0)
    run([op("neg", leaf(random((65,), dt.float32)))], index=0)
    assert cupy.entered == []  # it is the current one
    run([op("neg", leaf(random((66,), dt.float32)))], index=1)
    assert cupy.entered == [1] and cupy.current == 0


@needs_compiler
def test_every_thread_is_given_a_context(cupy):
    values = [op("neg", leaf(random((64,), dt.float32)))]
    run(values)
    other = threading.Thread(target=run, args=(values,))
    other.start()
    other.join()
    assert len(cupy.launches) == 2 == len(cupy.threads)


def test_the_stand_in_is_like_the_real_one():
    """Names and parameters of what the stand-in stands in for."""
    real = pytest.importorskip("cupy")
    assert real.cuda.driver.launchKernel.__doc__.count(",") == 10
    assert hasattr(real.RawModule, "get_function")
    for name in ("get_current_stream", "Device", "runtime", "driver"):
        assert hasattr(real.cuda, name)
    assert hasattr(real.RawKernel, "kernel") and hasattr(real.cuda.Function, "ptr")
    assert hasattr(real.cuda.driver, "CUDADriverError")
    assert hasattr(real.cuda.runtime, "CUDARuntimeError")
    assert hasattr(real.cuda.runtime, "getDevice") and hasattr(real.cuda.Device, "attributes")
