"""Dropout: what is zero, what is scaled, that the gradient knows, and that no mask is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import explain, profiler
from lucid_gpu.autograd import forward_ad, gradcheck, gradgradcheck
from lucid_gpu.autograd.graph import save_on_cpu
from lucid_gpu.core.program import forget
from lucid_gpu.func import vmap
from lucid_gpu.fusion import eager
from lucid_gpu.nn import functional as F
from lucid_gpu.utils.checkpoint import checkpoint
from tests.oracle import same_error, torch_module


def test_zeros_and_scales(device: str) -> None:
    lucid_gpu.manual_seed(0)
    x = lucid_gpu.ones(200, 100, device=device, requires_grad=True)
    y = F.dropout(x, 0.25)
    assert sorted(set(y.detach().reshape(-1).tolist())) == pytest.approx([0, 4 / 3])
    assert abs((y == 0).float().mean().item() - 0.25) < 0.01
    y.sum().backward()
    assert lucid_gpu.equal(x.grad, y.detach())


def test_the_seed_decides(device: str) -> None:
    masks = []
    for seed in (1, 1, 2):
        lucid_gpu.manual_seed(seed)
        masks.append(F.dropout(lucid_gpu.ones(64, device=device)).tolist())
    assert masks[0] == masks[1] != masks[2]


def test_not_in_evaluation() -> None:
    x = lucid_gpu.ones(5)
    assert F.dropout(x, 0.5, training=False) is x
    layer = lucid_gpu.nn.Dropout(0.5).eval()
    assert layer(x) is x


def test_all_or_nothing(device: str) -> None:
    x = lucid_gpu.ones(5, device=device)
    assert F.dropout(x, 0.0).tolist() == [1] * 5
    assert F.dropout(x, 1.0).tolist() == [0] * 5


def test_in_place(device: str) -> None:
    x = lucid_gpu.ones(50, device=device)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert (x == 0).any().item()


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_probability_outside_0_to_1(p: float) -> None:
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got"):
        F.dropout(lucid_gpu.ones(2), p)
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got"):
        lucid_gpu.nn.Dropout(p)


def test_integers_are_refused_as_in_torch() -> None:
    same_error(lambda m: m.nn.functional.dropout(m.arange(4), 0.5), "can't be cast to")


# --- where CUDA C runs: the mask is computed again, wherever it is needed -------------------------


@pytest.fixture
def cuda_c(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A device whose kernels are CUDA C: a GPU, or the CPU through the host executor."""
    if device == "cpu":
        if shutil.which("g++") is None:
            pytest.skip("the host executor compiles with g++, which is missing")
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    forget()
    yield device
    forget()


def block(x: Any, bias: Any, residual: Any, p: float = 0.1) -> Any:
    return F.dropout(F.gelu(x + bias, approximate="tanh"), p) + residual


def test_numbers_are_those_of_numpy(cuda_c: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks agree bit for bit, in every type and layout."""
    shapes: list[Any] = [(), (5,), (0, 3), (7, 1031), (64, 64)]
    for shape in shapes:
        for d in ("float16", "bfloat16", "float32", "float64"):
            lucid_gpu.manual_seed(4)
            there = F.dropout(lucid_gpu.ones(shape, device=cuda_c, dtype=getattr(lucid_gpu, d)))
            there.array
            with monkeypatch.context() as local:
                local.setattr("lucid_gpu.launch.Executor.host_cuda", False)
                forget()
                lucid_gpu.manual_seed(4)
                here = F.dropout(lucid_gpu.ones(shape, dtype=getattr(lucid_gpu, d)))
                assert lucid_gpu.equal(there.cpu(), here)
            forget()


def test_a_block_is_one_kernel_each_way(cuda_c: str) -> None:
    """bias + gelu + dropout + residual: inputs once, the output once, no mask at all."""
    n, m = 256, 512
    x, residual = (lucid_gpu.randn(n, m, device=cuda_c, requires_grad=True) for _ in range(2))
    bias = lucid_gpu.randn(m, device=cuda_c, requires_grad=True)
    g = lucid_gpu.randn(n, m, device=cuda_c)
    array, row = n * m * 4, m * 4
    with eager(False), profiler.record() as log:
        y = block(x, bias, residual)
        y.array
    assert [(k.bytes_read, k.bytes_written) for k in log.kernels] == [(2 * array + row, array)]
    with eager(False), profiler.record() as log:
        y.backward(g)
        x.grad.array
    reads, writes = zip(*[(k.bytes_read, k.bytes_written) for k in log.kernels], strict=True)
    assert all(r <= 2 * array + row for r in reads)  # x, g and the bias: never a mask
    assert sum(writes) <= array + row
    assert residual.grad is not None and lucid_gpu.equal(residual.grad, g)


def test_explain_says_so(cuda_c: str) -> None:
    x = lucid_gpu.ones(64, 64, device=cuda_c)
    with eager(False):
        (kernel,) = explain(F.dropout(x, 0.5)).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (64 * 64 * 4, 64 * 64 * 4)
    assert "random_uniform" in kernel.ops and "philox" in kernel.source


def test_backward_uses_the_same_mask(cuda_c: str) -> None:
    x = lucid_gpu.ones(300, 401, device=cuda_c, requires_grad=True)
    y = F.dropout(x, 0.3)
    z = F.dropout(y, 0.5)
    (z + lucid_gpu.rand(300, 401, device=cuda_c)).sum().backward()
    assert lucid_gpu.equal(x.grad, z.detach())


def seeded(function: Any) -> Any:
    """A function that draws the same numbers every time."""

    def same(*inputs: Any) -> Any:
        lucid_gpu.manual_seed(11)
        return function(*inputs)

    return same


@pytest.mark.slow
def test_derivatives(cuda_c: str) -> None:
    kinds = {"dtype": lucid_gpu.float64, "device": cuda_c, "requires_grad": True}
    x, residual = lucid_gpu.randn(3, 4, **kinds), lucid_gpu.randn(4, 3, **kinds)
    bias = lucid_gpu.randn(4, **kinds)

    def f(x: Any, bias: Any, residual: Any) -> Any:
        return block(x, bias, residual.T, 0.4) * F.dropout(bias, 0.3)

    assert gradcheck(seeded(f), (x, bias, residual), check_forward_ad=True)
    assert gradgradcheck(seeded(f), (x, bias, residual))


@pytest.mark.parametrize("hooks", ["none", "checkpoint", "on the CPU"])
def test_checkpoint_and_hooks_see_the_same_mask(cuda_c: str, hooks: str) -> None:
    x = lucid_gpu.linspace(0.5, 2, 4096, device=cuda_c, requires_grad=True)

    def f(x: Any) -> Any:
        return F.dropout((x * 1.5).exp(), 0.5)

    lucid_gpu.manual_seed(2)
    if hooks == "checkpoint":
        y = checkpoint(f, x, use_reentrant=False)
    elif hooks == "on the CPU":
        with save_on_cpu():
            y = f(x)
    else:
        y = f(x)
    lucid_gpu.rand(5, device=cuda_c)
    y.sum().backward()
    kept = (y.detach() != 0).to(lucid_gpu.float32)
    expected = kept * 2 * 1.5 * (x.detach() * 1.5).exp()
    assert lucid_gpu.allclose(x.grad, expected, rtol=1e-5)


def test_forward_mode(cuda_c: str) -> None:
    x = lucid_gpu.ones(1000, device=cuda_c)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x * 3)
        y, tangent = forward_ad.unpack_dual(F.dropout(dual, 0.5))
        assert lucid_gpu.equal(tangent, y * 3)


def test_randomness_of_vmap(cuda_c: str) -> None:
    x = lucid_gpu.ones(6, 500, device=cuda_c)
    same = vmap(F.dropout, randomness="same")(x)
    different = vmap(F.dropout, randomness="different")(x)
    assert lucid_gpu.equal(same, same[:1].expand(6, 500))
    assert len({tuple(row) for row in different.tolist()}) == 6
    with pytest.raises(RuntimeError, match="called random operation while in randomness error"):
        vmap(F.dropout)(x)


def test_vmap_of_a_gradient(cuda_c: str) -> None:
    """Batched cotangents go through a region that holds a mask."""
    x = lucid_gpu.randn(40, device=cuda_c, requires_grad=True)
    y = F.dropout(x * x, 0.5)
    rows = lucid_gpu.eye(40, device=cuda_c)
    (jacobian,) = lucid_gpu.autograd.grad(y, x, rows, is_grads_batched=True)
    kept = (y.detach() != 0).to(lucid_gpu.float32)
    assert lucid_gpu.allclose(jacobian, rows * (kept * 4 * x.detach()))


KINDS = {
    "dropout1d": (40, 30, 4),
    "dropout2d": (40, 30, 2, 2),
    "dropout3d": (40, 30, 2, 1, 2),
}


@pytest.mark.parametrize("name", KINDS)
def test_whole_channels_go(name: str, device: str) -> None:
    x = lucid_gpu.ones(*KINDS[name], device=device, requires_grad=True)
    y = getattr(F, name)(x, 0.25)
    flat = y.detach().reshape(1200, 4)
    assert lucid_gpu.equal(flat.amax(1), flat.amin(1))
    assert sorted(set(flat[:, 0].tolist())) == pytest.approx([0, 4 / 3])
    assert abs((flat == 0).float().mean().item() - 0.25) < 0.05
    y.sum().backward()
    assert lucid_gpu.equal(x.grad, y.detach())
    one = (
        getattr(F, name)(lucid_gpu.ones(*KINDS[name][1:], device=device)) if "2" not in name else y
    )
    assert one.shape in (x.shape, x.shape[1:])


@pytest.mark.parametrize("name", ["AlphaDropout", "FeatureAlphaDropout"])
def test_mean_and_variance_stay(name: str, device: str) -> None:
    x = lucid_gpu.randn(300, 200, 1, device=device)
    layer = getattr(lucid_gpu.nn, name)(0.3)
    y = layer(x).cpu().numpy()
    assert y.mean() == pytest.approx(0, abs=0.03)
    assert y.std() == pytest.approx(1, abs=0.03)
    low = 0.3 * 1.7580993408473766 * 0.8610 - 1.7580993408473766 * 0.8610
    assert (abs(y - low) < 1e-3).mean() == pytest.approx(0.3, abs=0.02)
    assert layer.eval()(x) is x
    assert F.alpha_dropout(x, 1.0, True).abs().max().item() == 0
    assert F.alpha_dropout(x, 0.5, True, True) is x


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda F, x: F.dropout1d(x[0, 0]), "dropout1d: Expected 2D or 3D input, but received"),
        (lambda F, x: F.dropout2d(x, 1.5), "probability has to be between 0 and 1, but got 1.5"),
        (lambda F, x: F.dropout2d(x[0, 0]), "Feature dropout requires at least 2 dimensions in"),
        (lambda F, x: F.alpha_dropout(x.long(), 0.5, True), "cast to the desired output type"),
    ],
)
@pytest.mark.filterwarnings("ignore:dropout2d")
def test_errors_of_other_kinds_are_torchs(call: Any, words: str) -> None:
    same_error(lambda m: call(m.nn.functional, m.ones(2, 3, 4)), words)


def test_unusual_ranks_warn() -> None:
    for function, rank in ((F.dropout2d, 3), (F.dropout2d, 2), (F.dropout3d, 3)):
        with pytest.warns(UserWarning, match=f"Received a {rank}-?D input to"):
            function(lucid_gpu.ones(*[2] * rank))


def test_layers_look_as_torchs() -> None:
    torch = torch_module()
    for name in ("Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"):
        ours, theirs = (getattr(m.nn, name)(0.2, True) for m in (lucid_gpu, torch))
        assert repr(ours) == repr(theirs)
