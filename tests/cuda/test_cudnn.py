"""Convolutions through cuDNN, or over its stand-in: tests/standin/frontend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import doctor
from lucid_gpu.backends import cudnn as settings
from lucid_gpu.devices import cudnn as by_cudnn
from tests.oracle import agree

normal = np.random.default_rng(0).standard_normal
F = lucid_gpu.nn.functional
single = lucid_gpu.float32


CASES = {
    "signals": ("conv1d", (3, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "images": ("conv2d", (2, 3, 7, 6), (4, 3, 3, 2), {"padding": "same"}),
    "all settings": (
        "conv2d",
        (2, 4, 9, 9),
        (8, 1, 3, 2),
        {"stride": (2, 1), "padding": (0, 1), "dilation": (2, 1), "groups": 4},
    ),
    "pixels left over": ("conv2d", (2, 2, 8, 9), (3, 2, 3, 3), {"stride": 3}),
    "volumes": (
        "conv3d",
        (2, 4, 5, 4, 6),
        (4, 2, 3, 2, 3),
        {"stride": (2, 1, 1), "padding": 1, "groups": 2},
    ),
    "signals back": ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 2, "padding": 1}),
    "images back": (
        "conv_transpose2d",
        (2, 4, 4, 5),
        (4, 2, 3, 3),
        {"stride": 2, "output_padding": 1, "groups": 2},
    ),
    "volumes back": ("conv_transpose3d", (2, 4, 3, 3, 2), (4, 3, 2, 2, 2), {"stride": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_both_orders_of_gradients_agree_with_torch(case, cudnn, device):
    name, images, weight, how = CASES[case]

    def convolved(m, x, w):
        return getattr(m.nn.functional, name)(x.to(m.float32), w.to(m.float32), **how)

    arrays = normal(images), normal(weight)
    agree(convolved, *arrays, order=2, device=device, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("case", ["images", "volumes"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_agree_with_torch(case, dtype, cudnn, device):
    name, images, weight, how = CASES[case]

    def convolved(m, x, w):
        kind = getattr(m, dtype)
        return getattr(m.nn.functional, name)(x.to(kind), w.to(kind), **how).float()

    arrays = normal(images), normal(weight)
    agree(convolved, *arrays, order=1, rtol=0.05, atol=0.05, device=device)


def step(x: Any, w: Any) -> tuple[Any, ...]:
    """A convolution and its gradients, from the values of tensors."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = F.conv2d(x, w, padding=1)
    (y * y).sum().backward()
    return y, x.grad, w.grad


def test_it_is_used_and_agrees_with_matrix_products(standin, device):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    found = step(x, w)
    ops = ("conv_fprop", "conv_dgrad", "conv_wgrad")
    assert standin._ran == [(op, "tiles") for op in ops]
    settings.enabled = False
    for ours, wanted in zip(found, step(x, w), strict=True):
        np.testing.assert_allclose(ours.numpy(force=True), wanted.numpy(force=True), 1e-4, 1e-4)
    assert len(standin._ran) == 3


def test_layouts_are_read_as_they_lie_or_copied(standin, device):
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    wanted = F.conv2d(x, w).numpy(force=True)
    wide = lucid_gpu.zeros(2, 3, 6, 10, device=device)
    wide[..., ::2] = x
    alike = {
        "channels last": x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        "every second column": wide[..., ::2],
        "off the alignment": lucid_gpu.cat([x.new_zeros(1), x.flatten()])[1:].view(2, 3, 6, 5),
        "channels last by name": x.contiguous(memory_format=lucid_gpu.channels_last),
    }
    for name, same in alike.items():
        y = F.conv2d(same, w)
        np.testing.assert_allclose(y.numpy(force=True), wanted, 1e-5, 1e-5, err_msg=name)
        last = "channels last" in name
        order = lucid_gpu.channels_last if last else lucid_gpu.contiguous_format
        assert y.is_contiguous(memory_format=order), name  # as PyTorch's
    strides = [g._operands[0]._stride for g in standin._graphs]
    assert strides == [[90, 30, 5, 1], [90, 1, 15, 3]]  # two graphs for four layouts


def test_graphs_are_built_once(standin, device):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    for _ in range(3):
        step(x, w)
    assert len(standin._graphs) == 3 and len(standin._ran) == 9
    step(x[:1], w)
    assert len(standin._graphs) == 6


def test_few_graphs_are_kept(standin, device, monkeypatch):
    monkeypatch.setattr(by_cudnn, "KEPT", 2)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    for size in (4, 5, 6, 4):
        F.conv2d(lucid_gpu.randn(1, 3, size, 5, device=device), w)
    assert len(standin._graphs) == 4
    assert all(len(here.graphs) <= 2 for here in by_cudnn._thread.devices.values())


def test_engines_that_change_results_are_left_out_unless_allowed(standin, device):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)

    def engine(kind: Any = single) -> str:
        F.conv2d(x.to(kind), w.to(kind))
        return standin._ran[-1][1]

    assert engine() == "tiles" and engine(lucid_gpu.float16) == "tf32"  # its notes: tensor cores
    settings.deterministic = False
    assert engine() == "atomics"
    lucid_gpu.use_deterministic_algorithms(True)
    try:
        assert engine() == "tiles"
    finally:
        lucid_gpu.use_deterministic_algorithms(False)
    settings.deterministic = True
    matmul = lucid_gpu.backends.cuda.matmul
    matmul.allow_tf32 = True
    try:
        assert engine() == "tf32"
        settings.allow_tf32 = False
        assert engine() == "tiles"
    finally:
        matmul.allow_tf32 = False


def test_benchmark_takes_the_fastest_engine(standin, device, monkeypatch):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    times = iter([5.0, 2.0])
    monkeypatch.setattr(by_cudnn, "_time", lambda xp, run: (run(), next(times))[1])
    settings.benchmark = True
    F.conv2d(x, w)
    F.conv2d(x, w)
    assert [engine for _, engine in standin._ran] == ["tiles", "winograd", "winograd", "winograd"]


def test_benchmark_measures(cudnn, device):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    plain = F.conv2d(x, w).numpy(force=True)
    settings.benchmark = True
    np.testing.assert_allclose(F.conv2d(x, w).numpy(force=True), plain, 1e-4, 1e-4)


@pytest.mark.parametrize("case", ["images", "volumes", "volumes back"])
def test_what_it_does_not_take_is_computed_otherwise(case, standin, device, monkeypatch):
    name, images, weight, how = CASES[case]
    monkeypatch.setattr(standin, "_engines", {})

    def convolved(m, x, w):
        return getattr(m.nn.functional, name)(x.to(m.float32), w.to(m.float32), **how)

    with pytest.warns(UserWarning, match=r"cuDNN has no engine for conv_\w+ of float32\[.*cuBLAS"):
        agree(convolved, normal(images), normal(weight), device=device, rtol=2e-4, atol=2e-4)


def test_a_warning_comes_once(standin, device, monkeypatch, recwarn):
    monkeypatch.setattr(standin, "_engines", {})
    x = lucid_gpu.ones(1, 1, 4, 4, device=device)
    for _ in range(2):
        F.conv2d(x, x)
    assert len([w for w in recwarn if "cuDNN has no engine" in str(w.message)]) == 1


def test_a_gradient_that_it_does_not_take_follows_a_value_that_it_does(
    standin, device, monkeypatch
):
    x = lucid_gpu.randn(1, 2, 4, 4, 4, device=device, requires_grad=True)
    w = lucid_gpu.randn(3, 2, 2, 2, 2, device=device, requires_grad=True)
    y = F.conv3d(x, w)
    monkeypatch.setattr(standin, "_engines", {})
    with pytest.warns(UserWarning, match="no engine"):
        found = lucid_gpu.autograd.grad(y.sum(), (x, w))
    settings.enabled = False
    wanted = lucid_gpu.autograd.grad(F.conv3d(x, w).sum(), (x, w))
    for ours, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(force=True), other.numpy(force=True), 1e-4, 1e-4)


def test_float64_empty_and_complex_ones_go_by_matrix_products(standin, device):
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    F.conv2d(lucid_gpu.randn(0, 3, 5, 5, device=device), w)
    for kind in (lucid_gpu.float64, lucid_gpu.complex64):
        F.conv2d(lucid_gpu.randn(1, 3, 5, 5, device=device).to(kind), w.to(kind))
    assert standin._graphs == []
    assert settings.is_acceptable(w) and not settings.is_acceptable(w.double())


def test_without_the_package_nothing_changes(gpu, device, monkeypatch):
    monkeypatch.setattr(by_cudnn.importlib.util, "find_spec", lambda name: None)
    by_cudnn.library.cache_clear()
    assert not settings.is_available() and settings.version() is None
    x = lucid_gpu.ones(1, 1, 3, 3, 3, device=device)
    assert F.conv3d(x, x).item() == 27
    by_cudnn.library.cache_clear()


def test_a_package_without_its_library_says_so(standin, monkeypatch):
    def missing() -> int:
        raise RuntimeError("Unable to find symbol cudnnGetVersion")

    monkeypatch.setattr(standin, "backend_version", missing)
    by_cudnn.library.cache_clear()
    with pytest.warns(UserWarning, match=r"cuDNN cannot be loaded \(Unable.*\[cudnn1[23]\]"):
        assert not settings.is_available()


def test_the_doctor_tries_it(cudnn):
    assert (
        doctor.cudnn() == f"cuDNN {settings.version()}: a convolution and its gradients are right"
    )


def test_streams_are_followed(standin, device):
    x = lucid_gpu.randn(2, 3, 6, 5, device=device)
    w = lucid_gpu.randn(4, 3, 3, 3, device=device)
    wanted = F.conv2d(x, w).numpy(force=True)
    other = lucid_gpu.cuda.Stream()
    other.wait_stream(lucid_gpu.cuda.current_stream())
    with lucid_gpu.cuda.stream(other):
        y = F.conv2d(x, w)
    assert list(standin._handles.values())[-1][1] == other.cuda_stream
    lucid_gpu.cuda.current_stream().wait_stream(other)
    np.testing.assert_array_equal(y.numpy(force=True), wanted)


def test_another_device_has_a_handle_of_its_own(standin, device):
    if lucid_gpu.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x, w = lucid_gpu.ones(1, 1, 4, 4), lucid_gpu.ones(1, 1, 3, 3)
    for index in (0, 1):
        assert F.conv2d(x.to(f"cuda:{index}"), w.to(f"cuda:{index}")).sum().item() == 36
    assert sorted(device for device, _ in standin._handles.values())[-2:] == [0, 1]


def test_batches_of_vmap_reach_it(standin, device):
    x = lucid_gpu.randn(3, 2, 2, 4, 4, 4, device=device)
    w = lucid_gpu.randn(3, 2, 2, 2, 2, 2, device=device)
    found = lucid_gpu.vmap(F.conv3d)(x, w).numpy(force=True)
    assert {op for op, _ in standin._ran} == {"conv_fprop"}
    wanted = [F.conv3d(*pair).numpy(force=True) for pair in zip(x, w)]
    np.testing.assert_allclose(found, np.stack(wanted), 1e-4, 1e-4)
