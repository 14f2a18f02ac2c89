"""Users' kernels: what they take, what they refuse, what a write means to autograd."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu import profiler
from lucid_gpu.cuda import UserKernel, kernel
from lucid_gpu.launch.compile_errors import CompileError
from tests.fusion.plans import needs_compiler

pytestmark = needs_compiler

SCALE = """
__global__ void scale(const T* x, T* y, float factor, long long n)
{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = compute_T(x[i]) * factor;
}
"""
SIGNATURE = "scale(const T* x, T* y, float factor, long long n)"
scale = kernel(SCALE, SIGNATURE)
double = kernel(
    """
    extern "C" __global__ void doubled(float* y, int n)
    {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = y[i] * 2;
    }
    """,
    "void doubled(float* y, int n);",
)
moved = kernel(
    """
    __global__ void moved(strided<const T, 2> x, strided<T, 2> y)
    {
        const long long i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < x.size()) y(i / x.shape[1], i % x.shape[1]) = x[i];
    }
    """,
    "moved(strided<const T, 2> x, strided<T, 2> y)",
)


@pytest.fixture(autouse=True)
def _cuda_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors go through the CUDA C, and everything else stays with NumPy."""
    monkeypatch.setattr(sys.modules["lucid_gpu.cuda.kernel"], "runs_cuda_c", lambda where: True)


def ones(*shape: int, **how: Any) -> Any:
    return lucid_gpu.ones(*shape, **how)


# --- what it does -----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("n", [1, 31, 257, 1025])
def test_one_source_for_all_types(d: dt.dtype, n: int, device: str) -> None:
    x = lucid_gpu.randn(n, dtype=d, device=device)
    y = lucid_gpu.empty_like(x)
    scale(x, y, 0.1, n)
    factor = float(np.float32(0.1))  # as it is declared
    wanted = (x.float() * factor).to(d) if d.itemsize < 4 else x * factor
    lucid_gpu.testing.assert_close(y, wanted)


def test_arguments_by_name_and_launch_settings(device: str) -> None:
    x, y = ones(6, device=device), lucid_gpu.zeros(6, device=device)
    scale(x, n=6, factor=3, y=y, grid=2, threads=4)
    assert y.tolist() == [3] * 6
    y.zero_()
    scale(x, y, 3, 6, size=1, threads=2)
    assert y.tolist() == [3, 3, 0, 0, 0, 0]
    scale(x, y, 5, 6, grid=(1, 1), threads=(2, 1, 1))
    assert y.tolist() == [5, 5, 0, 0, 0, 0]


def test_pending_tensors_are_computed_first(device: str) -> None:
    x = ones(5, device=device) + 1
    later = lucid_gpu.zeros(5, device=device) + 10
    scale(x, later, 2.0, 3)
    assert later.tolist() == [4, 4, 4, 10, 10]


def test_empty_tensors_launch_nothing(device: str) -> None:
    x, y = ones(0, device=device), lucid_gpu.zeros(0, device=device)
    with profiler.record() as log:
        scale(x, y, 2.0, 0)
    assert log.kernels == []


def test_a_launch_is_profiled(device: str) -> None:
    x, y = ones(5, device=device), lucid_gpu.zeros(5, device=device)
    with profiler.record() as log:
        scale(x, y, 2.0, 5)
    (one,) = log.kernels
    assert (one.name, one.bytes_read, one.bytes_written, one.shape) == ("scale", 20, 20, (5,))


@pytest.mark.parametrize("view", ["transposed", "flipped", "expanded", "steps", "whole"])
def test_strided_parameters(view: str, device: str) -> None:
    x = lucid_gpu.arange(12.0, device=device).reshape(3, 4)
    x = {
        "transposed": lambda: x.t(),
        "flipped": lambda: lucid_gpu.flip(x, (0, 1)),
        "expanded": lambda: x[:, :1].expand(3, 4),
        "steps": lambda: x[:, ::2],
        "whole": lambda: x,
    }[view]()
    y = lucid_gpu.zeros(*reversed(x.shape), device=device).t()
    moved(x, y)
    assert y.tolist() == x.tolist()


def test_arrays_of_numpy() -> None:
    x, y = np.arange(4.0), np.zeros(4)
    scale(x, y, 2.0, 4)
    assert y.tolist() == [0, 2, 4, 6]
    moved(np.arange(6.0).reshape(2, 3)[::-1, ::-1], z := np.zeros((2, 3)))
    assert z.tolist() == [[5, 4, 3], [2, 1, 0]]


def test_the_twin_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    seen: list[Any] = []

    def twin(x: Any, y: Any, factor: float, n: int) -> None:
        seen.append((type(x), factor, n))
        np.multiply(x, factor, out=y)

    x, y = ones(3), lucid_gpu.zeros(3)
    kernel(SCALE, SIGNATURE, cpu=twin)(x + 1, y, factor=2.0, n=3)
    assert y.tolist() == [4, 4, 4] and seen == [(np.ndarray, 2.0, 3)] and y._version == 1


# --- what a write means -----------------------------------------------------------------------


def test_a_write_counts_as_in_place(device: str) -> None:
    y = ones(4, device=device)
    doubled = y * 2  # pending on the old value
    view = y[1:3]
    double(y, 4)
    assert (y._version, view._version) == (1, 1)
    assert doubled.tolist() == [2] * 4 and view.tolist() == [2, 2]
    double(view, 2)
    assert y.tolist() == [2, 4, 4, 2] and y._version == 2


def test_what_is_read_stays_as_it_was(device: str) -> None:
    x, y = ones(4, device=device), lucid_gpu.zeros(4, device=device)
    scale(x, y, 2.0, 4)
    assert (x._version, y._version) == (0, 1)


def test_a_saved_tensor_that_is_written_is_noticed(device: str) -> None:
    x = ones(4, device=device, requires_grad=True)
    w = ones(4, device=device)
    loss = (x * w).sum()
    loss.array
    double(w, 4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*doubled wrote it"):
        loss.backward()


def test_leaves_that_require_grad_are_written_under_no_grad_only(device: str) -> None:
    x = ones(4, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        double(x, 4)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        double(x[:2], 2)
    assert x.tolist() == [1] * 4 and x._version == 0
    with lucid_gpu.no_grad():
        double(x, 4)
    assert x.tolist() == [2] * 4 and x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    assert x.grad.tolist() == [4] * 4


def test_a_gradient_that_would_be_lost_is_an_error(device: str) -> None:
    x = ones(4, device=device, requires_grad=True)
    y = lucid_gpu.zeros(4, device=device)
    with pytest.raises(RuntimeError, match=r"scale reads x, which requires grad.*x\.detach\(\)"):
        scale(x, y, 2.0, 4)
    with pytest.raises(RuntimeError, match="doubled writes y, which requires grad"):
        double(x * 1, 4)
    scale(x.detach(), y, 2.0, 4)
    with lucid_gpu.no_grad():
        scale(x, y, 3.0, 4)
    assert y.tolist() == [3] * 4


class Scaled(lucid_gpu.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        y = lucid_gpu.empty_like(x)
        scale(x.contiguous(), y, factor, x.numel())
        return y

    @staticmethod
    def backward(ctx, g):
        return scaled(g.contiguous(), ctx.factor), None


def scaled(x, factor):
    return Scaled.apply(x, factor)


def test_inside_a_function_gradients_flow_as_it_says(device: str) -> None:
    x = lucid_gpu.randn(3, 5, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    assert lucid_gpu.autograd.gradcheck(lambda x: scaled(x, 0.5), (x,))
    assert lucid_gpu.autograd.gradgradcheck(lambda x: scaled(x, 0.5), (x,))


def test_a_backward_that_calls_a_kernel_is_not_differentiated_in_silence(device: str) -> None:
    class Once(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            out = lucid_gpu.empty_like(g)
            scale(g, out, 2.0, g.numel())
            return out

    x = ones(3, device=device, requires_grad=True)
    Once.apply(x).sum().backward()
    assert x.grad.tolist() == [2] * 3
    y = Once.apply(x * x)
    with pytest.raises(RuntimeError, match="requires grad.*once_differentiable"):
        lucid_gpu.autograd.grad(y, x, ones(3, device=device, requires_grad=True), create_graph=True)


def test_mark_dirty(device: str) -> None:
    class Doubled(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            double(x, x.numel())
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = ones(3, device=device, requires_grad=True)
    y = x * 3
    z = Doubled.apply(y)
    assert z is y and y._version == 2 and y.tolist() == [6] * 3  # as in PyTorch
    y.sum().backward()
    assert x.grad.tolist() == [6] * 3


def test_tensors_of_transformations_are_refused() -> None:
    y = lucid_gpu.zeros(3)

    def f(x: Any) -> Any:
        scale(x, y, 2.0, 3)
        return x

    with pytest.raises(RuntimeError, match="batched or has a tangent"):
        lucid_gpu.func.vmap(f)(ones(2, 3))
    with pytest.raises(RuntimeError, match="batched or has a tangent"):
        lucid_gpu.func.jvp(f, (ones(3),), (ones(3),))


def test_inference_tensors() -> None:
    with lucid_gpu.inference_mode():
        y = ones(4) * 1
        double(y, 4)
    assert y.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        double(y, 4)


# --- what is refused --------------------------------------------------------------------------

X = lucid_gpu.ones(4)


@pytest.mark.parametrize(
    ("arguments", "named", "error", "sentence"),
    [
        ((X,), {}, TypeError, r"takes 4 arguments \(x, y, factor, n\); got 1; y, factor, n m"),
        ((X, 1, 2, 3, 4), {}, TypeError, "got 5"),
        ((X, X, 1.0), {"m": 3}, TypeError, "n missing"),
        ((X, X, 1.0, 4), {"x": X}, TypeError, "x given twice"),
        ((X, X, 1.0, 4), {"z": X}, TypeError, "there is no z"),
        ((X, X, 1.0), {"m": 4}, TypeError, "n missing; there is no m"),
        ((X, X.double(), 1.0, 4), {}, TypeError,
         "x and y are both declared with T; expected one element type, got float32 and float64"),
        ((X, 3, 1.0, 4), {}, TypeError, r"y is declared 'T\* y' and takes a tensor; got 3 \(int\)"),
        ((X, [1.0], 1.0, 4), {}, TypeError, r"takes a tensor; got \[1.0\] \(list\)"),
        ((None, None, 1.0, 4), {}, TypeError, "was given no tensor"),
        ((X, None, 1.0, 4), {}, TypeError, "writes no array in this call: give grid or size"),
        ((X, X, "1", 4), {}, TypeError, "factor is declared 'float factor' and takes a number"),
        ((X, X, X.sum(), 4), {}, TypeError,
         r"takes a number; got Tensor of .*float32 and shape \[\]"),
        ((X, X, 1e39, 4), {}, OverflowError, "'float factor', which does not hold 1e[+]39"),
        ((X, X, 1.0, 4.5), {}, TypeError, "'long long n' and takes an integer; got 4.5"),
        ((X, X, 1.0, 2**63), {}, OverflowError, "does not hold 9223372036854775808"),
        ((X.expand(3, 4), X, 1.0, 4), {}, ValueError,
         r"'const float\* x', which takes a contiguous array; got strides \(0, 1\) for shape "
         r"\[3, 4\]. Either pass x.contiguous\(\), or declare it 'strided<const float, 2> x'"),
        ((X, lucid_gpu.ones(4, 3).t(), 1.0, 4), {}, ValueError, "write to a new tensor and copy_"),
        ((np.zeros(4)[::2], np.zeros(2), 1.0, 2), {}, ValueError, "takes a contiguous array"),
        ((X, X, 1.0, 4), {"grid": 1, "size": 4}, TypeError, "give grid or size, not both"),
        ((X, X, 1.0, 4), {"size": -1}, ValueError, "size is not negative; got -1"),
        ((X, X, 1.0, 4), {"threads": 2048}, ValueError, "takes blocks of 1 to 1024 threads"),
        ((X, X, 1.0, 4), {"threads": 0}, ValueError, "takes blocks of 1 to 1024 threads"),
        ((X, X, 1.0, 4), {"grid": (1, 1, 70000)}, ValueError, "y and z at most 65535"),
        ((X, X, 1.0, 4), {"threads": "many"}, TypeError, "threads is an integer; got 'many'"),
        ((X, X, 1.0, 4), {"grid": (1, 2, 3, 4)}, ValueError, "grid is one number to three; got"),
        ((X, X, 1.0, 4), {"grid": (1, 2.0)}, TypeError, "grid is an integer; got 2.0"),
        ((X, X, 1.0, 4), {"size": 2.5}, TypeError, "size is an integer; got 2.5"),
        ((X, X, 1.0, 4), {"shared": -1}, ValueError, "shared is not negative; got -1"),
        ((X, X, 1.0, 4), {"shared": 1.5}, TypeError, "shared is an integer; got 1.5"),
        ((np.zeros(4, "u2"), X, 1.0, 4), {}, TypeError, "can't convert an array of type uint16"),
    ],
)  # fmt: skip
def test_bad_calls(arguments: Any, named: Any, error: type[Exception], sentence: str) -> None:
    before = X._version
    with pytest.raises(error, match=sentence):
        scale(*arguments, **named)
    assert X._version == before and X.tolist() == [1] * 4


def test_wrong_types_dimensions_and_memory() -> None:
    with pytest.raises(TypeError, match="'float. y'; expected elements of type float32, got int64"):
        double(lucid_gpu.arange(3), 3)
    with pytest.raises(ValueError, match=r"'strided<const float, 2> x'; expected 2 dim.*\[4\]"):
        moved(X, lucid_gpu.zeros(2, 2))
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        moved(lucid_gpu.ones(3, 4), lucid_gpu.zeros(4).expand(3, 4))
    fixed = np.zeros(3, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="and is written; got a read-only array"):
        double(fixed, 3)


def test_devices_must_agree(device: str) -> None:
    if device == "cpu":
        pytest.skip("one device is no two")
    with pytest.raises(RuntimeError, match=r"at least two devices, cuda:0 and cpu! \(scale: x is"):
        scale(ones(3, device=device), ones(3), 1.0, 3)


def test_cpu_tensors_without_a_way_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", False)
    y = lucid_gpu.zeros(3)
    with pytest.raises(RuntimeError, match="give its NumPy twin as kernel.*LUCID_EXECUTOR=host-c"):
        scale(ones(3), y, 1.0, 3)
    assert y._version == 0


@pytest.mark.parametrize(
    ("source", "signature", "sentence"),
    [
        (SCALE, "scale", "cannot read the signature 'scale'"),
        (SCALE, "scale(const T* x, T* y, float factor, n)", "cannot read 'n'"),
        (SCALE, "scale(const T* x, T* y, float factor)", r"has 3 parameters .*, the source 4 \(x,"),
        (SCALE, "scale(const T* x, T* y, double factor, long long n)",
         "the signature of scale says 'double factor', the source 'float factor'"),
        (SCALE, "scale(T* x, T* y, float factor, long long n)", "the source 'const T. x'"),
        (SCALE, "scale(const T* x, const T* y, float factor, long long n)", "scale writes nothing"),
        (SCALE, "other(const T* x, T* y)", "the source defines no kernel other"),
        (SCALE, "scale(const T* x, T* y, dim3 factor, long long n)", "factor is declared 'dim3'"),
        (SCALE, "scale(const float* x, float* y, T factor, long long n)", "no pointer is declared"),
        ("template <typename T> " + SCALE.strip(), SIGNATURE, "leave 'template <typename T>' out"),
        (SCALE, "scale(const T* x, T* x, float factor, long long n)", "names 'x' twice"),
    ],
)  # fmt: skip
def test_bad_signatures(source: str, signature: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kernel(source, signature)


def test_what_a_kernel_is_made_of() -> None:
    with pytest.raises(TypeError, match="takes its source as a str; got int"):
        kernel(3, SIGNATURE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes its signature as a str; got NoneType"):
        kernel(SCALE, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a function as cpu=; got int"):
        kernel(SCALE, SIGNATURE, cpu=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale: no parameter is declared with U"):
        kernel(SCALE, SIGNATURE, template="U")


def test_threads_of_a_block_have_a_limit() -> None:
    with pytest.raises(ValueError, match="a block has 1 to 1024 threads; got threads=1025"):
        kernel(SCALE, SIGNATURE, threads=1025)


def test_declarations_may_be_spelled_otherwise() -> None:
    source = """
    #define N 4
    /* __global__ void scale(int) { is a comment */
    __global__ void __launch_bounds__(256) scale(const float* __restrict__ x,  // read
                                                 float *__restrict__ y, unsigned int n)
    { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * N; }
    """
    one = kernel(source, "scale(float const* x, float* y, unsigned n)")
    one(ones(3), y := lucid_gpu.zeros(3), 3)
    assert y.tolist() == [4] * 3
    assert repr(one) == "<kernel scale of 3 parameters>" and isinstance(one, UserKernel)


OTHERS = """
struct Pair { float a, b; };
__device__ T squared(T x) { return compute_T(x) * compute_T(x); }
__global__ void others(T* y, const I* index, T factor, bool negate, const Pair* pair, unsigned n)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    I* kept = reinterpret_cast<I*>(bytes);
    kept[threadIdx.x] = index[threadIdx.x];
    __syncthreads();
    if (threadIdx.x >= n) return;
    const compute_T v = squared(y[kept[n - 1 - threadIdx.x]]) * compute_T(factor);
    __syncwarp();
    y[threadIdx.x] = (negate ? -v : v) + (pair ? pair->b : 0);
}
"""
others = kernel(
    OTHERS,
    "others(T* y, const I* index, T factor, bool negate, const Pair* pair, unsigned n)",
    template="T, I",
)


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("kind", [dt.uint8, dt.int32, dt.int64], ids=str)
def test_several_types_structures_and_shared_memory(
    d: dt.dtype, kind: dt.dtype, device: str
) -> None:
    y = lucid_gpu.arange(4, dtype=d, device=device)
    index = lucid_gpu.arange(4, dtype=kind, device=device)
    others(y, index, 0.5, True, None, 4, threads=4, shared=64)
    assert y.tolist() == [-4.5, -2.0, -0.5, 0.0]
    pair = lucid_gpu.tensor([1.0, 10.0], device=device)
    others(y, index, 0.0, True, pair, 4, threads=4, shared=64)
    assert y.tolist() == [10] * 4


def test_complex_numbers(device: str) -> None:
    z = lucid_gpu.tensor([1 + 2j, 3 - 1j], device=device)
    out = lucid_gpu.empty_like(z)
    kernel(
        """
        #include "complex.cuh"
        __global__ void turned(const T* z, T* out, T by)
        {
            const int i = threadIdx.x;
            if (i < 2) out[i] = z[i] * by;
        }
        """,
        "turned(const T* z, T* out, T by)",
    )(z, out, 1j)
    assert out.tolist() == [-2 + 1j, 1 + 3j]


def test_what_the_compiler_refuses_is_shown_with_its_line(device: str) -> None:
    source = SCALE.replace("x[i])", "w[i])").replace("\n", '#include "elementwise.cuh"\n', 1)
    bad = kernel(source, SIGNATURE)
    y = lucid_gpu.zeros(3, device=device)
    with pytest.raises(CompileError, match="refused the kernel scale") as caught:
        bad(ones(3, device=device), y, 1.0, 3)
    assert caught.value.line == 5
    assert re.search(r"\n-> +5 \|     if \(i < n\) y\[i\] = compute_T\(w\[i\]\)", str(caught.value))
    assert "w" in caught.value.log and y._version == 0
    scale(ones(3, device=device), y, 1.0, 3)  # and the next one runs
    assert y.tolist() == [1] * 3


def test_nvrtc_names_the_same_line() -> None:
    """The log of NVRTC, which CuPy puts into its exception, leads to the same line."""
    from tests.kernels.compiling import module

    nvrtc = module()
    bad = kernel(SCALE.replace("x[i])", "w[i])"), SIGNATURE)
    source = bad._function({"T": dt.float32}).source
    from lucid_gpu.launch.source import complete

    program = nvrtc.createProgram(complete(source), "kernel.cu", [], [])
    with pytest.raises(nvrtc.NVRTCError):
        nvrtc.compileProgram(program, ["-arch=sm_90", "-std=c++17"])
    error = CompileError("scale", "NVRTC", nvrtc.getProgramLog(program), complete(source))
    assert error.line == 5 and "->    5 |     if (i < n) y[i] = compute_T(w[i])" in str(error)


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("one", [scale, moved], ids=["scale", "moved"])
def test_what_users_are_given_compiles_for_gpus(one: Any, d: dt.dtype) -> None:
    from tests.kernels.compiling import architectures, resources

    for architecture in architectures()[:: 1 if d is dt.float16 else 7]:
        assert resources(one._function({"T": d}).source, architecture).spilled == 0


def test_the_kernels_of_the_guide() -> None:
    """Its page, its kernels run as CUDA C; and they compile for GPUs."""
    from tests.kernels.compiling import architectures, resources
    from tools.pages import TREE, blocks

    space: dict[str, Any] = {"__name__": "__main__"}
    shown = blocks(TREE / "docs" / "custom_kernels.md")
    for block in (b for b in shown if b.language == "python"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block.code, space)
        assert block.output is None or printed.getvalue() == block.output
    for name in ("leaky", "snake", "snake_bwd"):
        for d in (dt.bfloat16, dt.float32, dt.float64):
            function = space[name]._function({"T": d})
            for architecture in architectures()[::7]:
                assert resources(function.source, architecture).registers
