"""While a fused kernel is compiled its ops run one by one, and give the same bits."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import lucid_gpu
from bench.peers import environment
from lucid_gpu import dtypes as dt
from lucid_gpu import profiler
from lucid_gpu.core.program import forget
from lucid_gpu.device import CPU
from lucid_gpu.fusion import cuda_executor
from lucid_gpu.fusion.op_by_op import cut
from lucid_gpu.fusion.op_kernels import table_kernels
from lucid_gpu.launch import compiling
from lucid_gpu.launch.host import HostLauncher
from lucid_gpu.launch.launchers import launcher_of
from tests.slow import slow_but

from .plans import apply, full, leaf, needs_compiler, op, operands_of, planned, random, rows_for
from .test_property import Machine

pytestmark = needs_compiler

SECONDS = 60  # after which what should have happened is given up


# --- the same bits ------------------------------------------------------------------------------


def bits(array):
    """The bytes of an array, in which all NaNs are one."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype)
    if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        array = array.astype(np.float32)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.tobytes()


def compare(executable, arrays, scalars):
    """Run a plan fused and op by op; how many parts it has, 0 where it is not to be cut."""
    fused = executable(arrays, scalars)
    aligned = all(a.ctypes.data % m == 0 for a, m in zip(arrays, executable.aligned))
    parts = cut(executable.plan, aligned)
    if parts is None:
        return 0
    found = executable._run_parts(parts, arrays, scalars)
    for one, other in zip(fused, found, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert bits(one) == bits(other), executable.source
    return len(parts.parts)


def check(values, axes=None):
    plan, arrays, scalars = planned(values, axes)
    return compare(cuda_executor.Executable(plan), arrays, scalars)


KINDS = (dt.float32, dt.bfloat16, dt.complex64, dt.int32, dt.bool)


@pytest.mark.parametrize("d", slow_but(KINDS), ids=lambda d: d.name)
def test_every_row_of_the_table(d):
    """Three ops in a row, so that each reads what another one stored."""
    for row in rows_for(d):
        value = apply(row, d, (67,), operands_of(row, d, (67,)))
        other = leaf(random((67,), value.program.dtype, "positive"))
        if value.program.dtype is dt.bool:
            check([op("logical_and", value, other)])
        else:
            check([op("mul", op("add", value, other), value)])


def test_shapes_and_layouts():
    x, row, column = (random(shape, dt.float32) for shape in ((6, 8), (8,), (6, 1)))
    assert check([op("mul", op("add", leaf(x), leaf(row)), op("tanh", leaf(column)))]) == 3
    assert check([op("mul", op("exp", leaf(x.T)), leaf(x.T))]) == 2
    assert check([op("sub", op("exp", leaf(x[:, ::2])), leaf(x[:, 1::2]))]) == 2
    assert check([op("exp", op("mul", leaf(random((), dt.float32)), leaf(x)))]) == 2
    memory = np.zeros(4 * 9 + 2, np.uint8)
    ragged = np.ndarray((9,), np.float32, memory, 2)  # begins within an element
    ragged[...] = random((9,), dt.float32)
    assert check([op("mul", op("exp", leaf(ragged)), leaf(ragged))]) == 2


def test_numbers_are_arguments_of_ops_and_one_value_may_be_stored_twice():
    x = leaf(random((300,), dt.float32))
    y = op("mul", op("add", x, 1.5), -2.0)
    assert check([y, op("exp", y), y, x]) == 5  # two copies: of the result, of the array given
    assert check([op("add", full(2.0, dt.float32, (3,)), full(3.0, dt.float32, (3,)))]) == 2
    assert check([full(2.0, dt.float32, (3,))]) == 1


@pytest.mark.parametrize("d", (dt.float16, dt.bfloat16), ids=lambda d: d.name)
def test_what_is_not_rounded_between_ops_is_not(d):
    x, y = (random((500,), d, seed=seed) for seed in (0, 1))
    product = op("mul", leaf(x), leaf(y))
    check([op("sub", product, leaf(y)), op("add", op("cast", product, to=dt.float32), 1.0)])


def test_sums_add_in_the_same_order():
    x, row = random((300, 513), dt.float32), random((513,), dt.float32)
    for axes in (0,), (1,), (0, 1):
        assert check([op("mul", leaf(x), op("exp", leaf(row)))], axes) == 3
        assert check([op("mul", leaf(x), leaf(x)), op("exp", leaf(x))], axes) == 4
    long = random((300_000,), dt.float32)
    assert check([op("exp", leaf(long))], (0,)) == 2


def test_a_sum_waits_where_it_would_add_in_another_order():
    x = random((300, 512), dt.float32)
    assert check([op("exp", leaf(np.asfortranarray(x)))], (1,)) == 0  # neighbors are elsewhere
    assert check([op("exp", leaf(x.astype(np.float16)))], (1,)) == 0  # eight at a time, not four


def test_reductions_with_what_is_made_of_them(monkeypatch):
    """Through tensors: several values, tails, values stored beside."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    counts = compare_all(monkeypatch)
    x = lucid_gpu.rand(64, 48).requires_grad_()
    w = lucid_gpu.rand(48)
    y = (x * w).tanh()
    ((y - y.mean(0)).square().mean(0) + 1e-5).rsqrt().numpy(force=True)
    y.var(1).sqrt().numpy(force=True)
    (y.exp() * 2).logsumexp(1).numpy(force=True)
    (y * 3).argmax(1).numpy()
    (y > 0.1).all().numpy()  # sixteen truths make a pack, of which a float has four
    half = y.detach().to(lucid_gpu.bfloat16)
    (half * 2).to(lucid_gpu.float32).sum(1).numpy()
    half.float().square().sum(0).numpy()
    loss = ((y * 2).sum(1).square() + 1).mean()
    loss.backward()
    x.grad.numpy()
    assert len(counts) >= 8 and sum(count > 1 for count in counts) >= 6


def compare_all(monkeypatch):
    """Compare every plan that is run; the list of how many parts each has."""
    counts: list[int] = []
    run = cuda_executor.Executable.__call__

    def both(self, arrays, scalars):
        results = run(self, arrays, scalars)
        if not (self.shared or self.empty_space or self.copied or results is None):
            with monkeypatch.context() as plain:
                plain.setattr(cuda_executor.Executable, "__call__", run)
                counts.append(compare(self, arrays, scalars))
        return results

    monkeypatch.setattr(cuda_executor.Executable, "__call__", both)
    return counts


EXAMPLES = float(os.environ.get("LUCID_TEST_EXAMPLES", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("grad", (False, True))
def test_random_programs(monkeypatch, grad):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    counts = compare_all(monkeypatch)
    rng = np.random.default_rng(7)
    for _ in range(math.ceil(8 * EXAMPLES)):
        machine = Machine(int(rng.integers(1000)), rng.integers(0, 256, 4).tolist(), grad=grad)
        machine.run(rng.integers(0, 1000, (10, 4)).tolist())
        for value in machine.values:
            value.tensor.numpy(force=True)
        if grad:
            floating = [v.tensor for v in machine.values if v.tensor.requires_grad]
            if floating:
                floating[-1].sum().backward()
                [t.grad.numpy() for t in floating if t.is_leaf and t.grad is not None]
    assert sum(count > 1 for count in counts) >= 3


# --- who waits ----------------------------------------------------------------------------------


@pytest.fixture
def cold(monkeypatch):
    """Nothing is compiled yet, and fused kernels compile in the background when it lets them."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    launcher = launcher_of(CPU)
    monkeypatch.setattr(launcher, "kernels", {})
    monkeypatch.setattr(launcher, "met", {})
    monkeypatch.setattr(launcher, "slow", 0)
    monkeypatch.setattr(cuda_executor, "QUICK", math.inf)  # as if compiled ahead
    forget()
    gate = Gate(monkeypatch)
    with compiling.compile_mode("background"):
        yield gate
    gate.open.set()
    forget()


class Gate:
    """Holds back the compilation of kernels of two ops and more, and counts launches."""

    def __init__(self, monkeypatch):
        self.open = threading.Event()
        self.error: Exception | None = None
        self.launched: list[str] = []
        build, start = HostLauncher.build, HostLauncher.start

        def held(launcher, text):
            if self.holds(text.name):
                assert self.open.wait(SECONDS)
                if self.error is not None:
                    raise self.error
            return build(launcher, text)

        def counted(launcher, function, *arguments):
            self.launched.append(function.name)
            return start(launcher, function, *arguments)

        monkeypatch.setattr(HostLauncher, "build", held)
        monkeypatch.setattr(HostLauncher, "start", counted)

    def holds(self, name):
        return name.count("_") > 1 and not name.endswith(("_kernel", "_finish"))

    def let_through(self):
        """Until all that was asked for is compiled, or refused."""
        self.open.set()
        for future in list(launcher_of(CPU).kernels.values()):
            future.exception(SECONDS)

    def launches(self):
        """The kernels that were launched since the last time this was asked."""
        names, self.launched[:] = list(self.launched), []
        return names


X = np.linspace(-2, 2, 1000, dtype=np.float32)


def chain(x):
    return ((x * 1.5 + 1).tanh() * x).numpy()


def test_a_step_does_not_wait_and_takes_the_fused_kernel_once_it_is_there(cold):
    x = lucid_gpu.tensor(X)
    first = [chain(x) for _ in range(4)]  # while the fused kernel's compilation is held back
    assert cold.launches() == [
        "lucid_mul_kernel", "lucid_add_kernel", "lucid_tanh_kernel", "lucid_mul_kernel",
    ] * 4  # fmt: skip
    cold.let_through()
    fused = chain(x)
    assert cold.launches() == ["lucid_mul_add_tanh_mul"]
    assert all(bits(one) == bits(fused) for one in first)


def test_ops_whose_kernels_exist_compile_nothing_the_first_time(cold):
    x = lucid_gpu.tensor(X)
    chain(x)
    with profiler.planning() as log:
        (((x + 2).tanh() + 3) * x).numpy()
    assert log.plans == 1 and log.kernels == 0
    with profiler.planning() as log:
        (((x + 2).tanh() + 3) * x).numpy()
    assert log.kernels == 1  # the fused one, now that it has come again
    again = (((x + 2).tanh() + 3) * x).numpy()
    cold.let_through()
    cold.launches()
    assert bits((((x + 2).tanh() + 3) * x).numpy()) == bits(again)
    assert cold.launches() == ["lucid_add_tanh_add_mul"]


@pytest.mark.parametrize("count", (2, 16))
def test_where_no_op_has_a_kernel_the_fused_one_is_waited_for(cold, monkeypatch, count):
    """Two ops show that they are not on the disk; one more alone is compiled, several are not."""
    monkeypatch.setattr(cuda_executor, "QUICK", 0.0)
    monkeypatch.setattr(cuda_executor, "processors", lambda: count)
    cold.open.set()
    x = lucid_gpu.tensor(X)
    chain(x)
    assert cold.launches() == ["lucid_mul_add_tanh_mul"]
    cold.let_through()
    names = sorted(text.name for text in launcher_of(CPU).kernels)
    others = ["lucid_mul_kernel", "lucid_tanh_kernel"] if count > cuda_executor.FEW else []
    assert names == sorted(
        [*others, "lucid_add_kernel", "lucid_mul_kernel", "lucid_mul_add_tanh_mul"]
    )
    ((x * 1.5 + 1).exp()).numpy()
    assert cold.launches() == ["lucid_mul_kernel", "lucid_add_kernel", "lucid_exp_kernel"]


def test_one_op_waits_for_its_kernel(cold):
    x = lucid_gpu.tensor(X)
    (x * 2).numpy()
    assert cold.launches() == ["lucid_mul_kernel"]
    assert [text.name for text in launcher_of(CPU).kernels] == ["lucid_mul_kernel"]


def test_a_kernel_counts_for_the_line_that_needed_it(cold):
    x = lucid_gpu.tensor(X)
    y = (x * 1.5 + 1).tanh() * x
    with profiler.planning() as log:
        y.numpy()
        line = f"{__file__}:{y.numpy.__code__.co_firstlineno}"
    (told,) = log.lines
    assert told.startswith(__file__) and told != line
    assert log.kernels == 4  # mul by a number, add, tanh, mul


def test_a_refusal_in_the_background_is_an_error_of_the_next_use(cold):
    x = lucid_gpu.tensor(X)
    cold.error = RuntimeError("lucid_mul_add_tanh_mul: no compiler today")
    first = chain(x)
    chain(x)  # the second time it is begun
    cold.let_through()
    with pytest.raises(RuntimeError, match="no compiler today") as caught:
        chain(x)
    assert caught.traceback[0].path.name == "test_op_by_op.py"
    cold.error = None
    assert bits(chain(x)) == bits(first)


def test_threads_that_meet_the_same_expression(cold):
    x = lucid_gpu.tensor(X)
    results: list[bytes] = []

    def work():
        for _ in range(5):
            results.append(bits(chain(x)))
            time.sleep(0.01)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    cold.open.set()
    for thread in threads:
        thread.join(SECONDS)
    assert len(results) == 15 and len(set(results)) == 1


def test_waiting_when_asked_to(cold):
    cold.open.set()
    x = lucid_gpu.tensor(X)
    with compiling.compile_mode("wait"):
        chain(x)
    assert cold.launches() == ["lucid_mul_add_tanh_mul"]
    assert [text.name for text in launcher_of(CPU).kernels] == ["lucid_mul_add_tanh_mul"]


def test_a_training_loop_gives_the_same_bits_however_late_its_kernels_come(cold):
    """The fused kernels come in the middle, or are waited for."""

    def train(late):
        model = lucid_gpu.nn.Sequential(
            lucid_gpu.nn.Linear(8, 16), lucid_gpu.nn.GELU(), lucid_gpu.nn.Linear(16, 4)
        )
        generator = np.random.default_rng(0)
        for p in model.parameters():
            p.data = lucid_gpu.tensor(generator.normal(size=p.shape).astype(np.float32))
        step = lucid_gpu.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = (lucid_gpu.tensor(generator.normal(size=(32, n)).astype(np.float32)) for n in (8, 4))
        losses = []
        for i in range(8):
            if i == late:
                cold.let_through()
            step.zero_grad()
            loss = ((model(x) - y).tanh().square() * 1.5).mean()
            loss.backward()
            step.step()
            losses.append(loss.item())
        return losses

    first = train(late=0)
    launcher_of(CPU).kernels.clear()
    with compiling.compile_mode("wait"):
        assert train(late=99) == first


TOLD = """
import lucid_gpu as torch
from lucid_gpu.device import CPU
from lucid_gpu.launch.launchers import launcher_of
x = torch.tensor([1.0, 2.0])
for _ in range(3):
    ((x + 1) * x).numpy()
    for future in list(launcher_of(CPU).kernels.values()):
        future.result()
"""


def test_the_environment_variable_prints_what_the_background_does():
    ran = subprocess.run(
        [sys.executable, "-c", TOLD],
        env={
            **environment(), "LUCID_DEBUG": "1", "LUCID_EXECUTOR": "host-cuda",
            "LUCID_COMPILE": "background",
        }, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [one for one in ran.stdout.splitlines() if one.startswith(("compil", "took"))]
    assert lines == [
        "compiled lucid_add_kernel, number 1, at <string>:7",
        "compiled lucid_mul_kernel, number 2, at <string>:7",
        "compiling in the background lucid_add_mul, number 3, at <string>:7",
        "took lucid_add_mul, which ran op by op until now",
    ]


# --- compiled ahead -----------------------------------------------------------------------------


def test_the_kernels_of_common_ops_are_compiled_ahead():
    """Their sources are those that programs run, whatever their shapes."""
    ahead = {text.source for text in table_kernels()}
    x, y = (random((3, 5, 7), dt.float32, seed=seed) for seed in (0, 1))
    half = leaf(random((31,), dt.bfloat16))
    halves = op("cast", op("mul", op("exp", half), 2.0), to=dt.bfloat16)
    chosen = op("where", op("gt", leaf(x), 0.0), op("mul", leaf(x), leaf(y)), op("tanh", leaf(y)))
    for value, count in [(chosen, 4), (halves, 5)]:
        parts = cut(planned([value])[0], True)
        kernels = [cuda_executor._shared(p.plan).kernel(True) for p in parts.parts]
        assert len(kernels) == count
        assert {kernel.source for kernel in kernels} <= ahead
    sums = [((8, 64), (1,)), ((64, 8), (0,)), ((2000, 5000), (1,)), ((999_000,), (0,))]
    for shape, axes in [*sums, ((9000, 60), (0,))]:
        plan = planned([op("exp", leaf(np.zeros(shape, np.float32)))], axes)[0]
        *_, last = cut(plan, True).parts
        assert cuda_executor._shared(last.plan).kernel(True).source in ahead


def test_a_device_compiles_in_the_background(device):
    """On a GPU, its stand-in, and where nothing is ever compiled."""
    x = lucid_gpu.tensor(X, device=device)

    def compute():
        return (((x * 0.25 + 3).tanh() - x).exp() * 0.125).cpu().numpy()

    with compiling.compile_mode("background"):
        first = [compute() for _ in range(3)]
        for future in list(launcher_of(x.device).kernels.values()):
            assert future.exception(SECONDS) is None
        last = compute()
    assert all(bits(one) == bits(last) for one in first)
