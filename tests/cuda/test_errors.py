"""A kernel that fails ends in a Python error that says which, and of what shapes."""

from __future__ import annotations

import pickle

import pytest

import lucid_gpu
from lucid_gpu.devices.cuda_errors import explained, size_text

pytestmark = pytest.mark.usefixtures("gpu")


class Failing:
    """A launch, a copy or a wait of CUDA that finds an error."""

    def __init__(self, kind, text):
        self.kind, self.text = kind, text

    def __call__(self, *arguments, **named):
        error = RuntimeError.__new__(self.kind)
        RuntimeError.__init__(error, self.text)
        raise error


def launcher():
    from lucid_gpu.launch.launchers import launcher_of

    return launcher_of(lucid_gpu.zeros(1, device="cuda").device)


def starting_by_python(monkeypatch):
    """The launcher, which binds no kernel to a call of C."""
    here = launcher()
    monkeypatch.setattr(here, "bound", lambda *_: None)
    return here


def test_a_launch_that_fails_names_its_kernel(monkeypatch):
    here = starting_by_python(monkeypatch)
    x = lucid_gpu.rand(3, 4, device="cuda")
    (x + 1.25).tanh().array
    failing = Failing(
        here.cuda.driver.CUDADriverError, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"
    )
    monkeypatch.setattr(here, "launch_kernel", failing)
    y = (x + 1.25).tanh()
    with pytest.raises(
        lucid_gpu.AcceleratorError,
        match=r"CUDA error: an illegal memory access, noticed while running the kernel "
        r"lucid_add_tanh over shape \[3, 4\]\. An error of a kernel .* CUDA_LAUNCH_BLOCKING=1\. "
        r"CUDA refuses all further work in this process",
    ):
        y.array
    monkeypatch.undo()
    assert lucid_gpu.allclose(y.cpu(), (x.cpu() + 1.25).tanh())  # as it was


def test_a_blocking_launch_notices_its_own_kernels_error(monkeypatch):
    from lucid_gpu.launch import cuda as launch_cuda

    monkeypatch.setattr(launch_cuda, "BLOCKING", True)
    x = lucid_gpu.rand(5, device="cuda")
    (x + 2).array
    runtime = launcher().cuda.runtime
    failing = Failing(runtime.CUDARuntimeError, "cudaErrorAssert: device-side assert triggered")
    monkeypatch.setattr(runtime, "streamSynchronize", failing)
    with pytest.raises(lucid_gpu.AcceleratorError, match=r"the kernel lucid_add over shape \[5\]"):
        (x + 2).array


def test_a_copy_that_notices_says_so(monkeypatch):
    x = lucid_gpu.rand(5, device="cuda")
    x.array
    xp = launcher().xp
    failing = Failing(xp.cuda.runtime.CUDARuntimeError, "cudaErrorLaunchFailure: launch failure")
    monkeypatch.setattr(xp, "asnumpy", failing)
    with pytest.raises(lucid_gpu.AcceleratorError, match=r"launch failure, noticed while running"):
        x.cpu()
    with pytest.raises(lucid_gpu.AcceleratorError, match=r"item of float32\[\]"):
        x[0].item()


def test_an_error_nobody_is_near():
    told = str(explained(RuntimeError("cudaErrorInvalidValue: invalid argument")))
    assert told.startswith("CUDA error: invalid argument. An error of a kernel")
    assert "refuses" not in told


def test_sizes_are_pytorchs():
    assert [size_text(n) for n in (0, 1023, 1024, 5 << 29)] == [
        "0 bytes",
        "1023 bytes",
        "1.00 KiB",
        "2.50 GiB",
    ]


def test_an_error_sent_to_another_process_has_its_whole_text(monkeypatch):
    here = starting_by_python(monkeypatch)
    x = lucid_gpu.rand(3, 4, device="cuda")
    (x + 1.5).tanh().array
    text = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources"
    monkeypatch.setattr(here, "launch_kernel", Failing(here.cuda.driver.CUDADriverError, text))
    with pytest.raises(lucid_gpu.AcceleratorError) as caught:
        (x + 1.5).tanh().array
    there = pickle.loads(pickle.dumps(caught.value))
    assert type(there) is lucid_gpu.AcceleratorError and there.__traceback__ is None
    assert str(there) == str(caught.value)
    assert "lucid_add_tanh over shape [3, 4] cannot be launched" in str(there)
