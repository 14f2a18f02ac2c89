"""What shows memory conjugated or negated is a view, as in PyTorch: both ways, recorded or not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, plain, torch_module

VIEWS: dict[str, Any] = {
    "conj": lambda t: t.conj(),
    "negative": lambda t: t._neg_view(),
    "transposed": lambda t: t.transpose(0, -1) if t.ndim else t,
    "part": lambda t: t[0:1] if t.ndim else t,
    "imaginary": lambda t: t.imag if t.is_complex() else t,
    "real": lambda t: t.real if t.is_complex() else t,
    "flat": lambda t: t.reshape(-1),
    "adjoint": lambda t: t.mH if t.ndim >= 2 else t.conj(),
    "diagonal": lambda t: t.diagonal() if t.ndim >= 2 else t,
    "detached": lambda t: t.detach(),
    "first": lambda t: t[0] if t.ndim else t,
    "longer": lambda t: t.unsqueeze(0),
}


def _add_at(module: Any, t: Any) -> None:
    t.index_add_(0, module.tensor([0]), (t[:1] * 2).detach().clone())


def _put_at(module: Any, t: Any) -> None:
    t.index_put_((module.tensor([0]),), module.tensor(5.0).to(t.dtype))


def _first(module: Any, t: Any) -> None:
    t[0] = t[0] * 2


def _silently(module: Any, t: Any) -> None:
    with module.no_grad():
        t.mul_(2.0)


WRITES: dict[str, Any] = {
    "mul_": lambda module, t: t.mul_(1 + 1j if t.is_complex() else 2.0),
    "add_": lambda module, t: t.add_(1.5),
    "zero_": lambda module, t: t.zero_(),
    "setitem": lambda module, t: t.__setitem__(..., 3.0),
    "copy_": lambda module, t: t.copy_(t * 2 + 1),
    "masked_fill_": lambda module, t: t.masked_fill_((t.real if t.is_complex() else t) > 0, 0.5),
    "t[0] =": _first,
    "index_add_": _add_at,
    "index_put_": _put_at,
    "no_grad": _silently,
}


def _numbers(t: Any) -> Any:
    array = np.round(np.asarray(t.detach().resolve_conj().resolve_neg().tolist()), 9)
    return (array + 0).tolist()  # no zeros with a sign


def _program(module: Any, seed: int) -> list[Any]:
    """A random program of views and writes: what each line gives, values and gradients after it."""
    choose = random.Random(seed)
    parts = [choose.uniform(-2, 2) for _ in range(18)]
    values = np.array(parts[:9]) + (0 if seed % 5 == 0 else 1j) * np.array(parts[9:])
    kind = module.complex128 if seed % 5 else module.float64
    grad = seed % 3 > 0
    leaf = module.tensor(values.reshape(3, 3).tolist(), dtype=kind, requires_grad=grad)
    tensors, losses, found = [leaf * 1], [], []
    for _ in range(choose.randint(3, 9)):
        what, t = choose.random(), choose.choice(tensors)
        view, write = choose.choice(list(VIEWS)), choose.choice(list(WRITES))
        needs_rank = write in ("t[0] =", "index_add_", "index_put_") and not t.ndim
        try:
            if what < 0.5:
                tensors.append(VIEWS[view](t))
            elif what < 0.85 and not needs_rank:
                WRITES[write](module, t)
            elif what > 0.92:
                losses.append((t * t).abs().sum())
            else:
                losses.append(t.sin().abs().sum())
            found.append("done")
        except RuntimeError:
            found.append("refused")
        if choose.random() < 0.3:
            found.append(_numbers(choose.choice(tensors)))
    for t in tensors:
        found.append((t.is_conj(), t.is_neg(), t._is_view(), t._version, _numbers(t)))
    for loss in losses:
        try:
            if loss.requires_grad:
                loss.backward(retain_graph=True)
            found.append("backward")
        except RuntimeError:
            found.append("stale")
    return [*found, None if leaf.grad is None else _numbers(leaf.grad)]


@pytest.mark.parametrize("block", range(6))
def test_random_programs_agree_with_pytorch(block: int) -> None:
    torch = torch_module()
    for seed in range(20 * block, 20 * block + 20):
        np.testing.assert_equal(_program(lucid_gpu, seed), _program(torch, seed), f"seed {seed}")


def _refusals(module: Any) -> list[str]:
    z = module.tensor([[1 + 2j, 3 - 1j]])
    sentences = []
    for call in (
        lambda: z.conj().numpy(),
        lambda: z.conj().imag.numpy(),
        lambda: module.view_as_real(z.conj()),
        lambda: z.conj().view(module.float32),
        lambda: z.conj().__dlpack__(),
    ):
        with pytest.raises((RuntimeError, BufferError)) as error:
            call()
        sentences.append(str(error.value).replace("lucid_gpu", "torch").split(";")[0])
    return sentences


def test_what_reads_memory_is_refused_with_pytorchs_sentences() -> None:
    assert _refusals(lucid_gpu) == _refusals(torch_module())


def _marks(module: Any) -> list[Any]:
    x = module.tensor([[1 + 2j, 3, 2j], [4, -1j, 5]], requires_grad=True) * 1
    y = x.conj()
    views = [
        *(y, y.conj(), x.H, x.mH, x.adjoint(), y[0], y.imag, y.real, y.clone(), y.detach(), y.data),
        *(y.resolve_conj(), x.resolve_conj(), y.imag.resolve_neg(), y.contiguous(), y.to(y.dtype)),
        *(y + 1, y._neg_view(), x.real._neg_view(), y.reshape(6), y.t().reshape(6), y.view(6)),
        *(module.zeros_like(y), module.conj_physical(x), y.unbind(0)[0], y.expand(4, 2, 3)),
        *(y.diagonal(), y.as_strided((2,), (1,)), y[[0, 1]], y.unsafe_split(1)[0], y.T, x._conj()),
    ]
    return [
        (t.is_conj(), t.is_neg(), t._is_view(), t._base is x, tuple(t.stride()), plain(t.tolist()))
        for t in views
    ]


def test_marks_bases_and_strides() -> None:
    assert _marks(lucid_gpu) == _marks(torch_module())


def test_graph_goes_through_the_conjugated_tensor() -> None:
    for module, _ in modules():
        x = module.tensor([1 + 2j, 3j], requires_grad=True)
        y = x.conj()
        y.retain_grad()
        part = y[1:]
        assert y.grad_fn.name() == "ConjBackward0"
        assert part.grad_fn.next_functions[0][0] is y.grad_fn
        (part * (2 + 1j)).abs().sum().backward()
        assert y.grad.resolve_conj().tolist() == x.grad.conj().resolve_conj().tolist()
        assert x.grad[0] == 0 and x.grad[1] != 0


def test_tangents_keep_the_marks() -> None:
    for module, name in modules():
        forward = module.autograd.forward_ad
        with forward.dual_level():
            z = forward.make_dual(module.tensor([1 + 2j, 3j]), module.tensor([1j, 2 + 1j]))
            tangent = forward.unpack_dual(z.conj()).tangent
            assert tangent.is_conj(), name
            assert forward.unpack_dual(z.conj().imag).tangent.is_neg()
            y = z.conj()
            y.mul_(2j)
            assert forward.unpack_dual(z).tangent.resolve_conj().tolist() == [2, 2 - 4j]


def test_under_vmap() -> None:
    for module, _ in modules():
        x = module.tensor([[1 + 2j, 3j], [2 - 1j, 4]])
        assert module.func.vmap(lambda t: t.conj() * 2)(x).tolist() == (x.conj() * 2).tolist()


def test_dimensions_exchanged_in_place() -> None:
    for module, name in modules():
        x = module.tensor([[1 + 2j, 3, 2j]])
        y = x.conj()
        y.t_()
        y[1] = 5j
        assert y.is_conj() and y.shape == (3, 1) and x.tolist() == [[1 + 2j, -5j, 2j]], name


def test_no_copy_is_made_of_what_nobody_else_reads() -> None:
    x = lucid_gpu.tensor([1 + 2j, 3j])
    y, array = x.conj(), x.array
    for _ in range(3):
        y.mul_(2)
    assert x.array is array and x.tolist() == [8 + 16j, 24j]


def test_real_tensors_are_their_own_physical_conjugates() -> None:
    for module, _ in modules():
        x = module.tensor([1.0, 2.0])
        made = [x.conj_physical(), module.conj_physical(x), x.conj()]
        x.mul_(3)
        assert all(t is x for t in made)
        z = module.tensor([1 + 2j])
        apart = z.conj_physical()
        z.zero_()
        assert apart.tolist() == [1 - 2j]
