"""Views and reshapes: values and gradients as in torch, memory shared where it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, modules, plain, refuses, same_error, torch_module

RNG = np.random.default_rng(5)
CUBE = RNG.standard_normal((2, 3, 4))
STRIDED = np.asfortranarray(RNG.standard_normal((4, 3, 2)))[::2]
VECTOR = RNG.standard_normal(6)
NUMBER = np.array(1.5)
EMPTY = np.zeros((0, 3))

VIEWS: dict[str, Any] = {
    "reshape": lambda m, t: t.reshape(6, 4),
    "reshape infers": lambda m, t: t.reshape(-1, 2),
    "reshape of a tuple": lambda m, t: t.reshape((4, 6)),
    "view": lambda m, t: t.view(3, 8),
    "view_as": lambda m, t: t.view_as(t.reshape(8, 3)),
    "flatten": lambda m, t: t.flatten(),
    "flatten a part": lambda m, t: t.flatten(1),
    "unflatten": lambda m, t: t.unflatten(2, (2, 2)),
    "unflatten infers": lambda m, t: t.unflatten(-1, (-1, 2)),
    "squeeze": lambda m, t: t.unsqueeze(0).unsqueeze(-1).squeeze(),
    "squeeze one": lambda m, t: t.unsqueeze(1).squeeze(1),
    "squeeze nothing": lambda m, t: t.squeeze(1),
    "squeeze no dimension": lambda m, t: t.unsqueeze(0).squeeze(()),
    "unsqueeze": lambda m, t: t.unsqueeze(1),
    "unsqueeze last": lambda m, t: t.unsqueeze(-1),
    "permute": lambda m, t: t.permute(2, 0, 1),
    "permute of a tuple": lambda m, t: t.permute((0, -1, 1)),
    "transpose": lambda m, t: t.transpose(0, -1),
    "t": lambda m, t: t[0].t(),
    "T": lambda m, t: t[0].T,
    "mT": lambda m, t: t.mT,
    "movedim": lambda m, t: t.movedim(0, 2),
    "movedim several": lambda m, t: t.movedim((0, 1), (1, 2)),
    "expand": lambda m, t: t[:, :1].expand(2, 5, 4),
    "expand keeps": lambda m, t: t[:, :1].expand(-1, 5, -1),
    "expand leads": lambda m, t: t.expand(3, 2, 3, 4),
    "expand_as": lambda m, t: t[:1].expand_as(t),
    "broadcast_to": lambda m, t: t.broadcast_to((2, 2, 3, 4)),
    "narrow": lambda m, t: t.narrow(1, 1, 2),
    "split": lambda m, t: t.split(2, 2),
    "split sections": lambda m, t: t.split([1, 3], 2),
    "chunk": lambda m, t: t.chunk(2, 1),
    "unbind": lambda m, t: t.unbind(1),
    "detached": lambda m, t: t.detach(),
}
COPIES: dict[str, Any] = {
    "clone": lambda m, t: t.clone(),
    "contiguous of strided": lambda m, t: t.transpose(0, 1).contiguous(),
    "reshape of strided": lambda m, t: t.transpose(0, 1).reshape(-1),
    "repeat": lambda m, t: t.repeat(2, 1, 3),
    "repeat leads": lambda m, t: t.repeat(2, 1, 1, 1),
    "tile": lambda m, t: t.tile((2,)),
    "flip": lambda m, t: t.flip(0, 2),
    "flip of a tuple": lambda m, t: t.flip((1,)),
    "cat": lambda m, t: m.cat([t, t * 2], 1),
    "cat last": lambda m, t: m.cat((t, t[..., :1]), dim=-1),
    "stack": lambda m, t: m.stack([t, t * 2], 1),
    "stack last": lambda m, t: m.stack((t, t), dim=-1),
}


BY_NAME: dict[str, Any] = {
    "reshape": lambda m, t: (m.reshape(t, shape=(6, 4)), t.reshape(shape=[24])),
    "view": lambda m, t: (t.view(size=(4, 6)), t.detach().view(dtype=m.int64)),
    "permute": lambda m, t: (m.permute(t, dims=(1, 0, 2)), t.permute(dims=[2, 1, 0])),
    "expand": lambda m, t: t.expand(size=(2, 2, 3, 4), implicit=False),
    "broadcast_to": lambda m, t: m.broadcast_to(t, size=(2, 2, 3, 4)),
    "repeat": lambda m, t: t.repeat(repeats=(2, 1, 1)),
    "tile": lambda m, t: (m.tile(t, dims=(2,)), t.tile(2, 1)),
    "flip": lambda m, t: (m.flip(t, dims=(0,)), t.flip(dims=[1, 2])),
    "split": lambda m, t: t.split(split_size=2, dim=2),
    "tensor_split": lambda m, t: m.tensor_split(t, sections=2, dim=2),
    "tensor_split by places": lambda m, t: t.tensor_split(m.tensor([1, 3]), dim=2),
    "cat": lambda m, t: m.cat((t, t), axis=-1),
    "take_along_dim": lambda m, t: m.take_along_dim(t, m.tensor([[[2]]]).to(t.device), dim=2),
    "take_along_dim of all": lambda m, t: t.take_along_dim(m.tensor([5, 0]).to(t.device)),
    "gather": lambda m, t: m.gather(
        input=t, dim=0, index=m.ones(1, 3, 4, dtype=m.int64).to(t.device), sparse_grad=False
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_by_name_agree_with_torch(name: str, device: str) -> None:
    def copies(m: Any, t: Any) -> Any:
        found = BY_NAME[name](m, t)
        return [x * 1 for x in (found if isinstance(found, tuple) else (found,))]

    agree(copies, CUBE, device=device, order=1)


def test_arguments_by_name_inside_vmap(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    for function in (
        lambda t: t.reshape(shape=(4, 3)).permute(dims=(1, 0)),
        lambda t: t.view(size=(2, 6)).flip(dims=(0,)).expand(size=(2, 2, 6)),
        lambda t: lucid_gpu.cat((t, t), axis=0),
    ):
        expected = lucid_gpu.stack([function(t) for t in x])
        assert lucid_gpu.vmap(function)(x).tolist() == expected.tolist()


def test_results_are_put_into_out(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t, out = m.arange(4.0, device=where).reshape(2, 2), m.zeros(2, 2, device=where)
        found = [m.matmul(t, t, out=out).tolist(), m.mm(t, t.mT, out=out).tolist()]
        found.append(m.gather(t, 0, m.tensor([[1, 0], [0, 0]], device=where), out=out).tolist())
        rows = m.cat((t[:1], t[:1]), out=out) is out
        return found, rows, out, m.stack((t[0], t[1]), out=out)

    products = [[[2, 3], [6, 11]], [[1, 3], [3, 13]], [[2, 1], [0, 1]]]
    stacked = [[0, 1], [2, 3]]
    gives([products, True, stacked, stacked], scenario, device)


OUT: dict[str, Any] = {
    "functions of methods": lambda m, t, out: (
        m.addmm(t, t, t, out=out).tolist(), m.clamp(t, 1, 2, out=out).tolist(),
        m.index_select(t, 0, m.tensor([1, 0]).to(t.device), out=out).tolist(), t.triu().tolist(),
        m.triu(t, out=out) is out, out.tolist(), m.inner(t, t, out=out).tolist(),
    ),
    "several results": lambda m, t, out: (
        [part.tolist() for part in m.sort(t, 1, True, out=(out, out.long()))], out.tolist(),
    ),
    "linalg": lambda m, t, out: (m.linalg.inv(t + 1, out=out) is out, (out * 8).round().int()),
    "linalg, several": lambda m, t, out: (
        [round(p.item(), 3) for p in m.linalg.slogdet(t, out=(out[0, 0], out[0, 1]))],
    ),
    "fft": lambda m, t, out: m.fft.fft(t[0], out=m.zeros(2, dtype=m.complex64).to(t.device)).real,
    "special": lambda m, t, out: m.special.entr(t * 0, out=out),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT)
def test_out_agrees_with_torch(name: str, device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.arange(4.0, device=where).reshape(2, 2)
        return OUT[name](m, t, m.zeros(2, 2, device=where))

    gives(scenario(torch_module(), "cpu"), scenario, device)


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_values_and_gradients_agree_with_torch(name: str, device: str) -> None:
    agree({**VIEWS, **COPIES}[name], CUBE, device=device)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, t: t.reshape(-1),
        lambda m, t: t.permute(2, 1, 0),
        lambda m, t: t.transpose(1, 2)[1:],
        lambda m, t: t.flatten(0, 1),
        lambda m, t: t.contiguous().view(-1),
        lambda m, t: t.unsqueeze(0).expand(2, 2, 3, 2),
        lambda m, t: t.squeeze(),
        lambda m, t: m.cat([t, t], 2),
        lambda m, t: t.flip(1),
    ],
)
def test_strided_inputs_agree_with_torch(function: Any, device: str) -> None:
    agree(function, STRIDED, device=device)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, t: t.reshape(1, 1),
        lambda m, t: t.flatten(),
        lambda m, t: t.squeeze(),
        lambda m, t: t.unsqueeze(0),
        lambda m, t: t.expand(2, 3),
        lambda m, t: t.repeat(2),
        lambda m, t: t.permute(()),
        lambda m, t: t.clone(),
        lambda m, t: m.stack([t, t]),
    ],
)
def test_zero_dimensional_inputs_agree_with_torch(function: Any, device: str) -> None:
    agree(function, NUMBER, device=device)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, t: t.reshape(3, 0),
        lambda m, t: t.flatten(),
        lambda m, t: t.t(),
        lambda m, t: m.cat([t, t]),
        lambda m, t: m.cat([t, m.ones(2, 3, dtype=m.float64)]),
        lambda m, t: t.expand(2, 0, 3),
        lambda m, t: t.split(2),
        lambda m, t: t.chunk(3, 1),
    ],
)
def test_empty_inputs_agree_with_torch(function: Any, device: str) -> None:
    if device == "cpu":
        agree(function, EMPTY, device=device)


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_and_version(name: str, device: str) -> None:
    base = lucid_gpu.tensor(CUBE, device=device)
    found = VIEWS[name](lucid_gpu, base)
    views = found if isinstance(found, tuple) else (found,)
    for view in views:
        before = base._version
        base += 100
        assert view.min().item() > 50
        assert view._version == base._version == before + 1
        base -= 100
        if "expand" not in name and "broadcast" not in name:
            view.zero_()
    if "expand" not in name and "broadcast" not in name and "narrow" not in name:
        covered = name not in ("t", "T")
        assert (base == 0).sum().item() == (24 if covered else 12)


@pytest.mark.parametrize("name", COPIES)
def test_copies_share_nothing(name: str, device: str) -> None:
    base = lucid_gpu.tensor(CUBE, device=device)
    copy = COPIES[name](lucid_gpu, base)
    before = copy.tolist()
    base += 100
    assert copy.tolist() == before


def test_contiguous_is_the_tensor_itself_where_it_can_be(device: str) -> None:
    t = lucid_gpu.tensor(CUBE, device=device)
    assert t.contiguous() is t and t.is_contiguous()
    assert not t.transpose(0, 1).is_contiguous()
    assert t.transpose(0, 1).contiguous().is_contiguous()


def test_joining_promotes(device: str) -> None:
    a = lucid_gpu.ones(2, dtype=lucid_gpu.int64, device=device)
    b = lucid_gpu.ones(2, device=device)
    assert lucid_gpu.cat([a, b]).dtype is lucid_gpu.float32


def test_a_view_in_another_type_reads_the_same_bytes(device: str) -> None:
    t = lucid_gpu.tensor([1.0, -2.0], device=device)
    bits = t.view(lucid_gpu.int32)
    assert bits.dtype is lucid_gpu.int32
    assert t.view(lucid_gpu.uint8).tolist() == [0, 0, 128, 63, 0, 0, 0, 192]
    assert t.view(lucid_gpu.complex64).tolist() == [1 - 2j]
    assert bits.tolist() == [0x3F800000, 0xC0000000 - (1 << 32)]
    bits[0] = 0
    assert t.tolist() == [0.0, -2.0]


MISUSE: dict[str, tuple[Any, str]] = {
    "a size with a fraction": (lambda m: m.ones(12).reshape(2.5, 6), "must be ints, got (2.5, 6)"),
    "a view of half a row": (lambda m: m.ones(12).view((12, 1.0)), "must be ints, got (12, 1.0)"),
    "repeated by a fraction": (lambda m: m.ones(2).repeat(1.5), "must be ints, got (1.5,)"),
    "zeros of half a row": (lambda m: m.zeros(2.5, 2), ""),
    "zeros of a fraction": (lambda m: m.ones(2).new_zeros(2.5), "tuple of ints, not float"),
    "no chunks": (lambda m: m.ones(2).chunk(0), "`chunks` to be greater than 0, got: 0"),
    "cat of a list": (
        lambda m: m.cat([m.ones(2), [1.0]]),
        "expected Tensor as element 1 in argument 0, but got list",
    ),
    "wrong count": (lambda m: m.ones(6).reshape(4), "shape '[4]' is invalid for input of size 6"),
    "two inferred": (lambda m: m.ones(6).reshape(-1, -1), "only one dimension can be inferred"),
    "not divisible": (lambda m: m.ones(6).reshape(-1, 4), "is invalid for input of size 6"),
    "ambiguous": (lambda m: m.ones(0).reshape(-1, 0), "is ambiguous"),
    "view of strided": (
        lambda m: m.ones(2, 3).t().view(6),
        "view size is not compatible with input tensor's size and stride",
    ),
    "bytes of a number": (lambda m: m.tensor(1.0).view(m.uint8), "self.dim() cannot be 0 to view"),
    "half of a row": (lambda m: m.ones(2, 3).view(m.float64), "must be divisible by 2 to view"),
    "half of rows": (lambda m: m.ones(2, 3)[:, :2].view(m.float64), "self.stride(0) must be"),
    "bytes of columns": (lambda m: m.ones(2, 3).t().view(m.uint8), "self.stride(-1) must be 1 to"),
    "permute too few": (lambda m: m.ones(2, 3).permute(0), "number of dimensions"),
    "permute twice": (lambda m: m.ones(2, 3).permute(0, 0), "duplicate dims"),
    "unknown dim": (
        lambda m: m.ones(2, 3).transpose(0, 2),
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "unsqueeze too far": (lambda m: m.ones(2).unsqueeze(3), "Dimension out of range"),
    "t of a cube": (lambda m: m.ones(2, 2, 2).t(), "t() expects a tensor with <= 2 dimensions"),
    "expand": (lambda m: m.ones(2).expand(3), "The expanded size of the tensor (3) must match"),
    "expand to less": (lambda m: m.ones(2, 2).expand(2), "must be greater or equal"),
    "narrow too far": (lambda m: m.ones(3).narrow(0, 2, 2), "exceeds dimension size (3)"),
    "split sections": (lambda m: m.ones(3).split([1, 1]), "split_with_sizes expects"),
    "cat of nothing": (lambda m: m.cat([]), "expected a non-empty list of Tensors"),
    "cat of misfits": (
        lambda m: m.cat([m.ones(2, 2), m.ones(3, 3)]),
        "Sizes of tensors must match except in dimension 0",
    ),
    "stack of nothing": (lambda m: m.stack([]), "stack expects a non-empty TensorList"),
    "stack of misfits": (
        lambda m: m.stack([m.ones(2), m.ones(3)]),
        "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1",
    ),
    "repeat too few": (lambda m: m.ones(2, 2).repeat(2), "repeat dims can not be smaller"),
    "flip twice": (lambda m: m.ones(2, 2).flip(0, 0), "appears multiple times"),
    "movedim of unequal numbers": (
        lambda m: m.zeros(2, 3, 4).movedim((0, 1), (2,)),
        "should contain the same number of dims",
    ),
    "movedim to one place": (lambda m: m.zeros(2, 3).movedim((0, 1), (1, -1)), "repeated dim in"),
    "cat of numbers": (
        lambda m: m.cat([m.tensor(1.0)] * 2),
        "zero-dimensional tensor (at position 0)",
    ),
    "narrow of a number": (lambda m: m.tensor(1.0).narrow(0, 0, 1), "narrow() cannot be applied"),
    "narrow from outside": (lambda m: m.zeros(3).narrow(0, 4, 0), "start out of range"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize(
    "cut, words",
    [
        (lambda t: t.split(1), "split expects at least a 1-dimensional tensor"),
        (lambda t: t.split([1]), "split expects at least a 1-dimensional tensor"),
        (lambda t: t.unsafe_split(1), "split expects at least a 1-dimensional tensor"),
        (lambda t: t.chunk(2), "chunk expects at least a 1-dimensional tensor"),
        (lambda t: t.tensor_split(2), "at least a 1-dimensional tensor"),
        (lambda t: t.unbind(), "Dimension specified as 0 but tensor has no dimensions"),
    ],
)
def test_a_tensor_without_dimensions_cannot_be_cut(cut: Any, words: str, device: str) -> None:
    kind = IndexError if words.startswith("Dimension") else RuntimeError
    refuses(kind, words, lambda m, where: cut(m.ones((), device=where)), device)


def test_whether_a_reshape_is_a_view_costs_no_look_at_the_elements(monkeypatch):
    """CuPy answers `shares_memory` by sorting every address and waiting for the GPU."""
    monkeypatch.setattr(np, "shares_memory", lambda *_: pytest.fail("shares_memory was called"))
    x = lucid_gpu.from_numpy(np.arange(12.0).reshape(3, 4))
    x.view(4, 3)[0, 0] = 5
    assert x[0, 0].item() == 5
    x.reshape(2, 6)[0, 1] = 6
    assert x[0, 1].item() == 6
    copied = x.T.reshape(12)
    copied[0] = 7
    assert x[0, 0].item() == 5
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.T.view(12)


def test_copies_of_lines_that_alias(device):
    x = np.arange(35 * 256, dtype=np.float32).reshape(35, 256)
    t = lucid_gpu.tensor(x, device=device)
    np.testing.assert_array_equal(t.t().contiguous().numpy(force=True), x.T)
    laid = t.view(1, 35, 16, 16).contiguous(memory_format=lucid_gpu.channels_last)
    np.testing.assert_array_equal(laid.numpy(force=True), x.reshape(1, 35, 16, 16))


def test_moved_dimensions_of_a_tensor_without_dimensions():
    for m in (lucid_gpu, torch_module()):
        t = m.tensor(3.0, requires_grad=True)
        assert t.movedim(0, 0).item() == t.moveaxis(-1, 0).item() == t.movedim((0,), (0,)).item()
        t.movedim(0, 0).backward()
        assert t.grad.item() == 1


@pytest.mark.filterwarnings("ignore:.*0-D tensors")
def test_numbers_transposed_are_themselves() -> None:
    for m in (lucid_gpu, torch_module()):
        for name in ("mT", "mH", "T", "H"):
            assert getattr(m.tensor(2.0), name).tolist() == 2, (m.__name__, name)
        assert m.tensor(2.0).adjoint().tolist() == 2
    same_error(lambda m: m.ones(2).mH, "tensor.mH is only supported on matrices or batches of")
    same_error(lambda m: m.ones(2).adjoint(), "tensor.adjoint() is only supported on matrices or")


LAYOUTS: dict[str, Any] = {
    "row-major": lambda m, t: t * 1,
    "turned": lambda m, t: t.transpose(0, 2).contiguous().transpose(0, 2),
    "conjugated and turned": lambda m, t: m.complex(t, t).transpose(0, 2).conj(),
    "row-major, complex": lambda m, t: m.complex(t, t) * 1,
    "conjugated": lambda m, t: m.complex(t, t).conj(),
    "every second": lambda m, t: m.stack([t, t], -1)[..., 0],
    "expanded": lambda m, t: t[:1].expand(2, 3, 2),
    "made in inference mode": lambda m, t: _in_inference(m, t),
    "detached": lambda m, t: t.detach(),
}


def _in_inference(m: Any, t: Any) -> Any:
    with m.inference_mode():
        return t * 1


def test_views_lie_as_what_they_view(device: str) -> None:
    """Though how a view lies is decided once for a shape and a layout."""

    def scenario(m: Any, d: str) -> list[Any]:
        found = []
        for _ in range(2):
            for lay in LAYOUTS.values():
                t = lay(m, m.arange(12.0, device=d).view(2, 3, 2).requires_grad_())
                views = (t.transpose(0, 1), t.mT, t.reshape(6, 2), t.reshape(2, -1), t.flatten())
                for v in views:
                    marks = (v.requires_grad, v._is_view(), v.is_inference(), v.is_conj())
                    found.append((v.stride(), *marks, v.resolve_conj().tolist()))
        return found

    ours, *theirs = [plain(scenario(m, d)) for m, d in modules(device)]
    assert all(their == ours for their in theirs)
    half = len(ours) // 2
    assert ours[:half] == ours[half:]
