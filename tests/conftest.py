"""Every test that takes the `device` fixture runs once on each device there is."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.planning import forget_lines
from lucid_gpu.core.program import forget, forget_numbers
from lucid_gpu.devices import resolve
from lucid_gpu.fusion import realize
from lucid_gpu.fusion.realize import waiting
from lucid_gpu.fusion.scheduler import take_written
from lucid_gpu.launch import compiling
from tests.slow import left_out, mark_slow

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the property tests say so themselves
    pass
else:
    settings.register_profile(
        "suite",
        deadline=None,
        max_examples=60,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("suite")


def cuda_problem() -> str | None:
    """Why tensors cannot be put on a GPU here, or None."""
    try:
        lucid_gpu.zeros(1, device="cuda").cpu()
    except Exception as error:  # whatever is missing, this is what a user would read
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lucid_gpu")
    group.addoption(
        "--device",
        choices=("cpu", "cuda"),
        help="run tests of tensors on this device only (default: on all there are)",
    )
    group.addoption(
        "--require-gpu",
        action="store_true",
        help="fail where there is no GPU instead of leaving its tests out",
    )

    group.addoption(
        "--standin",
        action="store_true",
        help="run tests of tensors on device cuda over tests/standin, which stands in for CuPy "
        "where there is no GPU",
    )

    group.addoption(
        "--driver",
        action="store_true",
        help="run tests of tensors on device cuda with the real CuPy over tests/driver, which "
        "stands in for CUDA's driver; see make test-cuda-driver",
    )

    group.addoption(
        "--one-of",
        type=int,
        default=1,
        metavar="N",
        help="of tests with more than 12 cases run one case in N",
    )

    group.addoption(
        "--without-torch",
        action="store_true",
        help="run as where extra 'oracle' is not installed",
    )


class NoTorch(PathFinder):
    """Finds what is on the path but torch, as where it is not installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] == "torch":
            return None
        return super().find_spec(fullname, path, target)


def use_driver(config: pytest.Config) -> None:
    """Look that the process was started with the stand-in for the driver."""
    if "LUCID_DRIVER_STANDIN" not in os.environ:
        raise pytest.UsageError(
            "--driver: start it as python tests/driver/build.py pytest --driver"
        )
    os.environ.setdefault("LUCID_TEST_EXAMPLES", "0.1")  # a random graph is a kernel to compile
    config.option.device = "cuda"


def use_standin(config: pytest.Config) -> None:
    """Put the stand-in where `import cupy` finds it, for this process and those it starts."""
    from lucid_gpu.devices import cupy_backend

    if "cupy" in sys.modules:
        raise pytest.UsageError("--standin: the real cupy is imported already")
    folder = str(Path(__file__).parent / "standin")
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # what it makes of kernels is nothing for a GPU
    os.environ.setdefault("LUCID_TEST_EXAMPLES", "0.1")  # a random graph is a kernel to compile
    cupy_backend._has_driver = lambda: True  # type: ignore[assignment]
    config.option.device = "cuda"


def pytest_configure(config: pytest.Config) -> None:
    # Also in the processes that tests start; a test that wants another mode names it.
    compiling.setting.mode = os.environ["LUCID_COMPILE"] = "wait"
    if config.getoption("--without-torch"):
        sys.meta_path[sys.meta_path.index(PathFinder)] = NoTorch
    if config.getoption("--standin"):
        use_standin(config)
    if config.getoption("--driver"):
        use_driver(config)
    config.stash[PROBLEM] = problem = cuda_problem()
    config.stash[LEFT_OUT] = []
    wanted = config.getoption("--require-gpu") or config.getoption("--device") == "cuda"
    if problem and wanted:
        raise pytest.UsageError(f"tests on a GPU were asked for, but there is none: {problem}")


PROBLEM = pytest.StashKey[Any]()
LEFT_OUT = pytest.StashKey[list[str]]()


def devices(config: pytest.Config) -> list[str]:
    only = config.getoption("--device")
    if only:
        return [only]
    return ["cpu"] if config.stash[PROBLEM] else ["cpu", "cuda"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices(metafunc.config), scope="session")


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@pytest.hookimpl(tryfirst=True)  # before cases are left out by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over a stand-in only tests that take the fixture are run: the others ran on the CPU."""
    mark_slow(items)
    if config.getoption("--standin") or config.getoption("--driver"):
        own = "cupy" if config.getoption("--standin") else "driver"
        wanted = {"device", own}  # the second is the stand-in's own
        named = [i for i in items if wanted & set(getattr(i, "fixturenames", ()))]
        config.hook.pytest_deselected(items=[i for i in items if i not in set(named)])
        items[:] = named
    left = left_out(items, config.getoption("--one-of"))
    config.hook.pytest_deselected(items=[items[i] for i in left])
    items[:] = [item for i, item in enumerate(items) if i not in left]


def pytest_report_header(config: pytest.Config) -> str:
    packages = ("numpy", "ml_dtypes", "cupy-cuda12x", "cupy-cuda13x", "torch", "hypothesis")
    found = [f"{name} {v}" for name in packages if (v := version_of(name))]
    if config.getoption("--standin"):
        return (
            f"lucid_gpu {lucid_gpu.__version__}: NO GPU. Device cuda is tests/standin, a stand-in "
            "for CuPy on the host; nothing it says is a GPU result"
        )
    if config.getoption("--driver"):
        return (
            f"lucid_gpu {lucid_gpu.__version__}: NO GPU. Device cuda is the real CuPy over "
            "tests/driver, a stand-in for CUDA's driver; nothing it says is a GPU result"
        )
    return (
        f"lucid_gpu {lucid_gpu.__version__} on {', '.join(devices(config))}; "
        f"Python {platform.python_version()}, {', '.join(found)}"
    )


def pytest_report_collectionfinish(
    config: pytest.Config, items: list[pytest.Item]
) -> str | list[str]:
    count = sum("device" in getattr(item, "fixturenames", ()) for item in items)
    if config.getoption("--standin") or config.getoption("--driver"):
        return f"{count} tests over the stand-in; no test runs on a GPU"
    if "cuda" in devices(config):
        return f"no GPU test is left out: {count} tests name their device"
    why = config.stash[PROBLEM] or "--device cpu"
    return f"GPU tests left out: {count} ({why})" if count else []


@pytest.fixture
def on_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that name no device: the tensors they make are on this one.

    `Tensor.numpy` copies from there, so that a test need not say it.
    """
    if device == "cpu":
        return
    where, take, give = resolve(device), lucid_gpu.from_numpy, lucid_gpu.Tensor.numpy

    def numpy(self: lucid_gpu.Tensor, *, force: bool = False) -> Any:
        copied = self.device == where and not self.requires_grad
        return give(self, force=force or copied)

    def made_on(value: Any, out: Any = None) -> Any:
        return where if value is None and out is None else resolve(value, out)

    for name, module in list(sys.modules.items()):
        if name.startswith("lucid_gpu.") and getattr(module, "resolve", None) is resolve:
            monkeypatch.setattr(module, "resolve", made_on)
    monkeypatch.setattr(lucid_gpu, "from_numpy", lambda array: take(array).to(where))
    monkeypatch.setattr(lucid_gpu.Tensor, "numpy", numpy)


def set_aside() -> None:
    """Freeze what is left for good: no collection counts it or walks through it, for seconds.

    Programs and plans are forgotten first. Frozen in a cycle they would stay for good, and every
    `forget`, of which each use of `eager` makes two, walks through all of them.
    """
    forget()
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_heap() -> None:
    """What other tests left is neither counted by the garbage collector nor walked through."""
    set_aside()


@pytest.fixture
def without_gc(own_heap: None) -> Iterator[None]:
    """Things die by reference counts alone."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _what_is_kept() -> None:
    """What the tests before have left for good is no garbage: collections do not look at it."""
    set_aside()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note where each generator of NumPy's that a module of the tests holds begins.

    Twenty thousand tests, and what they import, are no garbage: no collection looks at them.
    """
    set_aside()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tests" and module is not None:
            held = [getattr(value, "__self__", value) for value in vars(module).values()]
            streams = [g.bit_generator for g in held if isinstance(g, np.random.Generator)]
            where = name if name.rpartition(".")[2].startswith("test_") else "shared"
            STREAMS.setdefault(where, []).extend([(s, s.state) for s in streams])


STREAMS: dict[str, list[tuple[Any, Any]]] = {}  # of each test module, and of what they share


@pytest.fixture(autouse=True)
def _alike(request: pytest.FixtureRequest) -> None:
    """Each test starts alike: with the same random numbers to come, and with nothing pending.

    A reduction that an error of another test keeps, or what it wrote in place, would be computed in
    one of this one's kernels.
    """
    for stream, state in (*STREAMS.get(request.module.__name__, ()), *STREAMS.get("shared", ())):
        stream.state = state
    lucid_gpu.manual_seed(0)
    waiting.clear()
    take_written()
    forget_lines()
    forget_numbers()
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
        # its compiler turns this off when an optimizer is first made
        torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture(autouse=True)
def _nothing_amiss(request: pytest.FixtureRequest) -> Iterator[None]:
    """No kernel of the test was given an array that lay otherwise than its leaf's program says.

    Over the stand-in for CUDA's driver nothing that the test left to do fails, and over that for
    CuPy no kernel wrote outside its arrays.
    """
    before = realize.misdeclared
    yield
    if request.config.getoption("--standin"):
        from cupy.cuda import memory

        memory._check_all()
        faults, memory._faults[:] = list(memory._faults), []
        assert not faults, "\n".join(faults)
    if request.config.getoption("--driver"):
        import driver_standin

        assert driver_standin.settled() == "", driver_standin.counts()
    assert request.node.get_closest_marker("misdeclares") or realize.misdeclared == before
