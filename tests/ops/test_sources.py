"""Constructors from others' memory, options of constructors, complex views, odd questions."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from tests.oracle import agree, gives, modules, same_error, torch_module

rng = np.random.default_rng(8)
PAIRS = rng.standard_normal((3, 2))


def told(x: Any) -> Any:
    return str(x.dtype).split(".")[-1], list(x.shape), x.tolist()


MADE: dict[str, Any] = {
    "asarray of a list": lambda m, d: m.asarray([1, 2.5], device=d),
    "asarray of a number": lambda m, d: m.asarray(3, device=d),
    "asarray of an array": lambda m, d: m.asarray(np.arange(3.0), dtype=m.float32, device=d),
    "asarray, copied": lambda m, d: m.asarray(np.arange(3), copy=True, device=d),
    "frombuffer": lambda m, d: m.frombuffer(bytearray(range(8)), dtype=m.int16).to(d),
    "frombuffer, a part": lambda m, d: m.frombuffer(
        bytearray(range(8)), dtype=m.uint8, count=3, offset=2
    ).to(d),
    "from_dlpack": lambda m, d: m.from_dlpack(np.arange(3)).to(d),
    "logspace": lambda m, d: m.logspace(0, 2, 5, dtype=m.float64, device=d),
    "linspace to a complex end": lambda m, d: m.linspace(0, 1j, 3, device=d),
    "linspace from a complex tensor": lambda m, d: m.linspace(m.tensor(2j), 2, 3, device=d),
    "logspace to a complex end": lambda m, d: m.logspace(0, 1j, 2, device=d).imag.round(decimals=5),
    "chunks of nothing": lambda m, d: m.stack(m.zeros(2, 0, device=d).chunk(3, 1)),
    "the different ones of none": lambda m, d: m.stack(
        m.zeros(0, 3, device=d).unique(dim=0, return_inverse=True, return_counts=True)[1:]
    ),
    "logspace by 2": lambda m, d: m.logspace(0, 3, 4, base=2, device=d),
    "logspace of integers": lambda m, d: m.logspace(0, 3, 4, dtype=m.int64, device=d),
    "whole quotients": lambda m, d: m.div(
        m.tensor([123456789, -7], device=d), m.tensor([1, 2], device=d), rounding_mode="trunc"
    ),
    "a number's quotient": lambda m, d: m.div(-7, m.tensor([2], device=d), rounding_mode="trunc"),
    "range": lambda m, d: m.range(1, 3, device=d),
    "range by halves": lambda m, d: m.range(0, 1, 0.5, device=d),
    "range backwards": lambda m, d: m.range(3, 1, -1, dtype=m.int64, device=d),
    "zeros with options": lambda m, d: m.zeros(
        (2, 3), layout=m.strided, pin_memory=False, device=d
    ),
    "zeros by size": lambda m, d: m.zeros(size=(2, 3), device=d),
    "ones into": lambda m, d: m.ones(2, out=m.zeros(2, device=d)),
    "full into": lambda m, d: m.full((2,), 3.0, out=m.zeros(2, device=d)),
    "arange into": lambda m, d: m.arange(2, out=m.zeros(2, device=d)),
    "linspace into": lambda m, d: m.linspace(0, 1, 3, out=m.zeros(3, device=d)),
    "logspace into": lambda m, d: m.logspace(0, 2, 3, out=m.zeros(3, device=d)),
    "eye into": lambda m, d: m.eye(2, out=m.zeros(2, 2, device=d)),
    "rand into": lambda m, d: m.rand(2, out=m.ones(2, device=d)) * 0,
    "normal into": lambda m, d: m.normal(0.0, 1.0, (2,), out=m.ones(2, device=d)) * 0,
    "full with options": lambda m, d: m.full((2,), 3.0, layout=m.strided, device=d),
    "ones_like": lambda m, d: m.ones_like(m.zeros(2, 3, device=d), memory_format=m.preserve_format),
    "arange with options": lambda m, d: m.arange(3, layout=m.strided, device=d),
    "eye with options": lambda m, d: m.eye(2, pin_memory=False, device=d),
    "H": lambda m, d: m.tensor([[1, 2j]], device=d).H,
    "is_complex": lambda m, d: m.tensor(m.is_complex(m.tensor([1j], device=d))),
    "is_signed": lambda m, d: m.tensor(m.is_signed(m.ones(2, device=d).byte())),
    "is_nonzero": lambda m, d: m.tensor(m.is_nonzero(m.ones(1, device=d))),
    "polar": lambda m, d: m.polar(m.ones(2, device=d), m.zeros(2, device=d)),
    "conj": lambda m, d: m.conj(m.tensor([1 + 2j], device=d)).resolve_conj(),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made(name: str, device: str) -> None:
    found = [told(MADE[name](module, where)) for module, where in modules(device)]
    assert all(f == found[0] for f in found), found


def test_memory_is_shared() -> None:
    array, bytes_ = np.zeros(3), bytearray(8)
    for module in (lucid_gpu, torch_module()):
        shared, buffer = module.asarray(array), module.frombuffer(bytes_, dtype=module.int32)
        exchanged = module.from_dlpack(array)
        array[0], bytes_[4] = array[0] + 1, bytes_[4] + 1
        assert shared[0] == array[0] and exchanged[0] == array[0]
        assert buffer[1] == bytes_[4]
        x = module.ones(2)
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # NumPy 2.0's are read-only
            np.from_dlpack(x)[0] = 5
            assert x.tolist() == [5, 1]
        assert module.asarray(x) is x
    with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
        np.from_dlpack(lucid_gpu.ones(2, requires_grad=True))


def _product(m: Any, x: Any) -> Any:
    return x * 2


def _gradient(m: Any, x: Any) -> Any:
    return m.autograd.grad((x * 1).sin().sum(), x)[0]


def _accumulated(m: Any, x: Any) -> Any:
    x.sin().sum().backward()
    return x.grad


def _gradient_with_history(m: Any, x: Any) -> Any:
    return m.autograd.grad(x.sin().sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("made", [_product, _gradient, _accumulated, _gradient_with_history])
@pytest.mark.parametrize("back", [False, True], ids=["array", "from_numpy"])
def test_writes_through_arrays_come_after_what_was_computed(made: Any, back: bool) -> None:
    results = []
    for module in (lucid_gpu, torch_module()):
        x = module.arange(3.0).requires_grad_()
        other = x.detach().numpy()  # the tensor that lent the memory is gone
        other = module.from_numpy(other) if back else other
        result = made(module, x)
        other *= 5
        results.append(result.detach())
        assert x.tolist() == [0, 5, 10]
    assert results[0].tolist() == pytest.approx(results[1].tolist())


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.as_strided_((2,), (1,)),
        lambda x: x.resize_(3),
    ],
    ids=["t_", "unsqueeze_", "as_strided_", "resize_"],
)  # fmt: skip
def test_arrays_of_a_copy_are_apart_from_what_was_copied(change: Any) -> None:
    for module in (lucid_gpu, torch_module()):
        x = module.arange(4.0).reshape(2, 2)
        copy = module.empty_like(x).copy_(x)
        change(x)
        before = x.tolist()
        copy.numpy()[:] = 9
        assert x.tolist() == before
        assert copy.tolist() == [[9, 9], [9, 9]]


def test_a_pending_gradient_outlives_metadata_writes(device: str) -> None:
    for module, where in modules(device):
        y = module.ones(2, 2, device=where).requires_grad_()
        y.sin().sum().backward()
        y.detach_()
        y.squeeze_()
        y[:1].fill_(7)
        assert y.grad[0].tolist() == y.grad[1].tolist()


def test_views_of_a_result_outlive_its_metadata_writes() -> None:
    for module in (lucid_gpu, torch_module()):
        x = module.arange(16.0).reshape(1, 2, 2, 4).permute(0, 3, 2, 1).clone()
        positions = module.zeros(1, 4, 2, 2, dtype=module.int64)
        laid = positions.contiguous(memory_format=module.channels_last)
        result = x.gather(2, laid)
        view = result[None]
        result.squeeze_()
        array = view.numpy()
        assert array.shape == (1, 1, 4, 2, 2)
        view[..., :1] = 3
        assert array[..., 0].tolist() == [[[[3, 3]] * 4]]
        assert result[..., 0].tolist() == [[3, 3]] * 4


def test_tangents_of_strided_views_lie_as_their_tensor() -> None:
    results = []
    for module in (lucid_gpu, torch_module()):
        x = module.arange(4.0).reshape(2, 2).t()
        turned = lambda v: v.as_strided((2, 2), (1, 2))  # noqa: E731
        tangent = (x + 1).contiguous()
        results.append(module.func.jvp(turned, (x,), (tangent,))[1].tolist())
    assert results[0] == results[1]


def test_libraries_of_gpus_exchange_memory(device: str) -> None:
    x = lucid_gpu.arange(3, device=device)
    kind, _ = x.__dlpack_device__()
    assert kind == (1 if device == "cpu" else 2)


def test_strided_memory(device: str) -> None:
    for module, where in modules(device):
        x = module.empty_strided((2, 3), (1, 2), dtype=module.float64, device=where)
        assert x.stride() == (1, 2) and tuple(x.shape) == (2, 3)
        y = x.new_empty_strided((2, 0), (3, 1))
        assert y.dtype == module.float64 and y.numel() == 0


def test_views_of_parts(device: str) -> None:
    agree(lambda m, x: m.view_as_real(m.view_as_complex(x) * 1j), PAIRS, device=device)
    agree(
        lambda m, x: m.view_as_real(m.view_as_complex(x * 2).conj().resolve_conj()),
        PAIRS,
        device=device,
    )
    agree(
        lambda m, r, a: m.view_as_real(m.polar(r, a)), abs(PAIRS[:, 0]), PAIRS[:, 1], device=device
    )
    z = lucid_gpu.tensor([1 + 2j, 3], device=device)
    lucid_gpu.view_as_real(z)[0, 1] = 5
    assert z.tolist() == [1 + 5j, 3]
    x = lucid_gpu.tensor(PAIRS, device=device)
    lucid_gpu.view_as_complex(x)[0] = 7 - 1j
    assert x[0].tolist() == [7, -1]
    leaf = lucid_gpu.tensor(PAIRS, requires_grad=True)
    assert gradcheck(lambda x: lucid_gpu.view_as_complex(x).abs(), (leaf,))


def test_memory_of_a_file(tmp_path: Any) -> None:
    for module, _ in modules():
        path = str(tmp_path / module.__name__)
        x = module.from_file(path, shared=True, size=3)  # which makes the file
        x.copy_(module.arange(3.0)).mul_(2)
        assert np.fromfile(path, np.float32).tolist() == [0.0, 2.0, 4.0]
        own = module.from_file(path, size=2, dtype=module.float32)
        assert own.add_(1).tolist() == [1.0, 3.0] and x.tolist() == [0.0, 2.0, 4.0]
        with pytest.raises(RuntimeError, match="is smaller than the required mapping size"):
            module.from_file(path, size=4)
        assert module.from_file(path, size=1, requires_grad=True).requires_grad
        assert module.from_file(path).shape == (0,)


def test_dimensions_lie_in_an_order(device: str) -> None:
    def order(m: Any, where: str) -> Any:
        last = m.empty((2, 3, 5, 7), memory_format=m.channels_last, device=where)
        made = m.empty_permuted((2, 3, 4), (1, 2, 0), dtype=m.int64, device=where)
        formats = [m.contiguous_format, m.channels_last]
        plain = m.empty(1, 2, 3, 4, device=where)
        return [
            last.dim_order(), m.empty(2, 3, 4).transpose(0, 1).dim_order(), made.stride(),
            made.dim_order(ambiguity_check=True), plain.dim_order(ambiguity_check=formats),
            (m.ones(2, 3, device=where) + 1).dim_order(), m.ones((), device=where).dim_order(),
        ]  # fmt: skip

    expected = [(0, 2, 3, 1), (1, 0, 2), (1, 8, 2), (1, 2, 0), (0, 1, 2, 3), (0, 1), ()]
    gives(expected, order, device)
    same_error(lambda m: m.ones(1, 2).dim_order(ambiguity_check=True), "unique dim order")
    same_error(lambda m: m.ones(2).dim_order(ambiguity_check="x"), "must be a bool or a list")


def test_orders_of_memory(device: str) -> None:
    for module, where in modules(device):
        x = module.arange(24.0, device=where).reshape(1, 2, 3, 4)
        y = x.contiguous(memory_format=module.channels_last)
        assert y.stride() == (24, 1, 8, 2) and y.tolist() == x.tolist()
        assert y.is_contiguous(memory_format=module.channels_last) and not y.is_contiguous()
        assert not x.is_contiguous(memory_format=module.channels_last)
        assert y.contiguous(memory_format=module.channels_last) is y
        assert x.to(memory_format=module.channels_last).stride() == y.stride()
        assert x.clone(memory_format=module.channels_last).stride() == y.stride()
        assert x.clone(memory_format=module.preserve_format).stride() == x.stride()
        assert y.contiguous().stride() == x.stride()
        x.requires_grad_()
        (x.contiguous(memory_format=module.channels_last) ** 2).sum().backward()
        assert x.grad.tolist() == (2 * x).tolist()


IN_PLACE = ("abs_", "acos_", "arccos_", "ceil_", "cos_", "exp_", "fix_", "floor_", "negative_",
            "sigmoid_", "square_", "tanh_", "trunc_", "zero_")  # fmt: skip


def test_in_place_functions(device: str) -> None:
    for name in IN_PLACE:
        results = []
        for module, where in modules(device):
            x = module.tensor([0.25, -0.5], dtype=module.float64, device=where)
            assert getattr(module, name)(x) is x
            results.append(x.tolist())
        assert all(np.allclose(r, results[0]) for r in results), name
    for module, where in modules(device):
        x = module.tensor([0.25, -3.0], device=where)
        assert module.clamp_(x, min=-1).tolist() == [0.25, -1]
        assert module.fill_(x, 2).tolist() == [2, 2]
        assert x.subtract_(1).multiply_(6).divide_(2).tolist() == [3, 3]
        assert x.greater_(2).tolist() == [1, 1]
        whole = module.tensor([12, 18], device=where)
        assert whole.gcd_(module.tensor([8, 27], device=where)).tolist() == [4, 9]
        assert module.lcm_(whole, module.tensor([6, 6], device=where)).tolist() == [12, 18]
        y = module.tensor([[3.0, 4], [0, 1]], device=where)
        assert np.allclose(y.renorm_(2, 0, 1.0).tolist(), [[0.6, 0.8], [0, 1]])
        assert np.allclose(module.xlogy_(y, y + 1).tolist()[1], [0, np.log(2)])


def test_python_functions_of_elements() -> None:
    for module, _ in modules():
        x = module.tensor([[1.0, 2], [3, 4]])
        assert x.apply_(lambda v: v + 1) is x
        assert x.map_(module.ones(2), lambda a, b: a * 2 - b).tolist() == [[3, 5], [7, 9]]
        with pytest.raises(RuntimeError, match="requires grad"):
            module.ones(2, requires_grad=True).apply_(abs)
        with pytest.raises(RuntimeError, match="requires grad"):
            held = module.ones(2, requires_grad=True)
            module.ones(2).map2_(module.ones(2), held, lambda a, b, c: a)
        for whole in (False, True):
            with pytest.raises(TypeError):
                (module.arange(2) if whole else module.ones(2)).apply_(lambda v: "1")


def test_methods_that_are_functions(device: str) -> None:
    for module, where in modules(device):
        x = module.ones(2, device=where, requires_grad=True)
        assert not module.detach(x).requires_grad
        assert module.fill(x.detach(), 3).tolist() == [3, 3]
    from lucid_gpu.utils import dlpack

    assert dlpack.from_dlpack(np.arange(2)).tolist() == [0, 1]
    assert "dltensor" in repr(dlpack.to_dlpack(lucid_gpu.ones(2)))


def test_questions(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    assert x.is_cpu is (device == "cpu") and x.is_shared() is (device != "cpu")
    assert x.get_device() == (-1 if device == "cpu" else 0) == lucid_gpu.get_device(x)
    assert x.positive() is x and x.resolve_neg() is x and not x.is_conj() and not x.is_neg()
    gives(True, lambda m, d: m.ones(1, device=d).is_signed(), device)


REFUSED: tuple[tuple[Any, str], ...] = (
    (lambda m: m.asarray(m.ones(2), dtype=m.int32, copy=False), "can't alias tensor with dtype"),
    (lambda m: m.asarray([1], copy=False), "can't alias"),
    (lambda m: m.frombuffer(bytearray(7), dtype=m.int32), "must be a multiple of element size (4)"),
    (lambda m: m.frombuffer(bytearray(8), dtype=m.int32, count=3), "requested buffer length (3 *"),
    (lambda m: m.frombuffer(bytearray(0), dtype=m.int32), "both buffer length (0) and count (-1)"),
    (lambda m: m.frombuffer(bytearray(8), dtype=m.int32, offset=8), "offset (8 bytes) must be"),
    (lambda m: m.zeros(2, what=3), "got an unexpected keyword argument 'what'"),
    (lambda m: m.logspace(0, 1, -1), "number of steps must be non-negative"),
    (lambda m: m.range(1, 2, 0), "step must be nonzero"),
    (lambda m: m.range(2, 1), "upper bound and lower bound inconsistent with step sign"),
    (lambda m: m.view_as_real(m.ones(2)), "view_as_real is only supported for complex tensors"),
    (lambda m: m.view_as_complex(m.ones(3)), "must have a last dimension of size 2"),
    (lambda m: m.view_as_complex(m.ones(3, 2).int()), "view_as_complex is only supported for half"),
    (
        lambda m: m.view_as_complex(m.ones(2, 3).T),
        "Tensor must have a last dimension with stride 1",
    ),
    (lambda m: m.polar(m.ones(2), m.ones(2).double()), "Expected object of scalar type"),
    (lambda m: m.ones(2).clone(memory_format=m.channels_last), "required rank 4 tensor to use"),
    (lambda m: m.ones(2).bool().positive(), "on a bool tensor is not supported"),
    (lambda m: m.is_nonzero(m.ones(2)), "Boolean value of Tensor with more than one value"),
    (
        lambda m: m.frombuffer([1], dtype=m.int32),
        "object does not implement Python buffer protocol",
    ),
    (lambda m: m.empty_permuted((2, 3), (1, 1)), "Duplicate dim not allowed"),
    (lambda m: m.empty_permuted((2, 3), (1, 2)), "Dimension out of range"),
    (lambda m: m.empty_permuted((2, 3), (1,)), "Number of dimensions in size does not match"),
    (lambda m: m.isclose(m.ones(2), m.ones(2), m.ones(2)), "'rtol' (position 3) must be float"),
    (
        lambda m: m.isclose(m.ones(2), m.ones(2), 1, m.tensor(1.0, requires_grad=True)),
        "'atol' (position 4) must be float",
    ),
    (lambda m: m.set_num_threads("2"), "set_num_threads expects an int, but got str"),
    (lambda m: m.set_num_interop_threads(0), "set_num_interop_threads expects a positive integer"),
    (
        lambda m: m.frombuffer(bytearray(8), dtype=m.int32, offset=3),
        "buffer length (5 bytes) after offset (3 bytes) must be a multiple of element size (4)",
    ),
)


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case: int) -> None:
    same_error(*REFUSED[case])


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.zeros(3, 0).unique(dim=0),
        lambda m: m.zeros(0, 3).unique(dim=1),
        lambda m: m.ones(2).flip(),
    ],
)
def test_what_has_no_answer_is_refused(call: Any) -> None:
    same_error(call)


def test_complex_ends_are_not_cut() -> None:
    for name in ("linspace", "logspace"):
        with pytest.raises(RuntimeError, match="can't be safely cast to passed dtype float32"):
            getattr(lucid_gpu, name)(0, 1j, 3, dtype=lucid_gpu.float32)


def test_the_bytes_of_buffers_are_those_of_elements():
    numbers = array.array("f", [1.0, 2.5])
    for buffer in (numbers, bytearray(numbers.tobytes()), memoryview(numbers), bytes(numbers)):
        assert lucid_gpu.asarray(buffer).tolist() == [1.0, 2.5]
    shared = bytearray(2)
    lucid_gpu.asarray(shared, dtype=lucid_gpu.uint8).fill_(7)
    lucid_gpu.asarray(shared, dtype=lucid_gpu.uint8, copy=True).fill_(8)
    assert shared == bytearray([7, 7])
    assert lucid_gpu.asarray(bytearray()).shape == (0,)
    with pytest.raises(ValueError, match="must be a multiple of element size"):
        lucid_gpu.asarray(bytearray(3))
