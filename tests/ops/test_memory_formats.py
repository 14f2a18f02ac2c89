"""How results lie in memory, beside PyTorch: ops whose order is declared by `lying` and `lay`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu

from ..oracle import torch_module

RNG = np.random.default_rng(0)
IMAGES, VOLUMES = (2, 4, 6, 8), (2, 4, 4, 6, 8)
FILTERS = RNG.standard_normal((6, 4, 3, 3)).astype(np.float32)
PER_CHANNEL = RNG.uniform(0.5, 1, 4).astype(np.float32)


def laid(m, shape, layout):
    """Numbers of a shape: channels last, with gaps too, or in an order of their own."""
    numbers = m.tensor(np.random.default_rng(1).permutation(np.prod(shape)).reshape(shape))
    x = (numbers / float(np.prod(shape))).to(m.float32)
    if layout == "permuted":
        order = (2, 3, 1, 0, 4)[: len(shape)]
        back = sorted(range(len(shape)), key=order.__getitem__)
        return x.permute(order).contiguous().permute(back)
    channels_last = m.channels_last if len(shape) == 4 else m.channels_last_3d
    wide = x.repeat_interleave(2, -1) if layout == "gaps" else x
    return wide.contiguous(memory_format=channels_last)[..., :: wide.shape[-1] // shape[-1]]


def positions(m, *shape):
    return m.zeros(shape, dtype=m.int64)


OF_IMAGES = {
    "conv2d": lambda m, x: m.nn.functional.conv2d(x, m.tensor(FILTERS)),
    "conv2d of one": lambda m, x: m.nn.functional.conv2d(x[0], m.tensor(FILTERS)),
    "conv2d with bias": lambda m, x: m.nn.functional.conv2d(
        x, m.tensor(FILTERS), m.tensor(FILTERS[:, 0, 0, 0])
    ),
    "conv_transpose2d": lambda m, x: m.nn.functional.conv_transpose2d(
        x, m.tensor(FILTERS).transpose(0, 1)
    ),
    "group_norm": lambda m, x: m.nn.functional.group_norm(x, 2),
    "group_norm, scaled": lambda m, x: m.nn.functional.group_norm(x, 2, m.tensor(PER_CHANNEL)),
    "instance_norm": lambda m, x: m.nn.functional.instance_norm(x),
    "batch_norm": lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True),
    "batch_norm, followed": lambda m, x: m.nn.functional.batch_norm(
        x, m.tensor(PER_CHANNEL), m.tensor(PER_CHANNEL)
    ),
    "interpolate": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2),
    "bilinear": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x, 2),
    "max_pool2d's indices": lambda m, x: m.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda m, x: m.nn.functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_max_pool2d": lambda m, x: m.nn.functional.adaptive_max_pool2d(x, (4, 3)),
    "pad": lambda m, x: m.nn.functional.pad(x, (1, 2, 1, 0)),
    "reflect": lambda m, x: m.nn.functional.pad(x, (1, 2, 1, 0), mode="reflect"),
    "circular": lambda m, x: m.nn.functional.pad(x, (1, 2, 1, 0), mode="circular"),
    "replicate and cut": lambda m, x: m.nn.functional.pad(x, (-1, 2, 1, 0), mode="replicate"),
    "channel_shuffle": lambda m, x: m.nn.functional.channel_shuffle(x, 2),
    "pixel_unshuffle": lambda m, x: m.nn.functional.pixel_unshuffle(x, 2),
    "flip": lambda m, x: x.flip(2, 3),
    "roll": lambda m, x: x.roll(1, 2),
    "sort": lambda m, x: x.sort(1)[0],
    "sort's indices": lambda m, x: x.sort(1)[1],
    "argsort": lambda m, x: x.argsort(2),
    "index_select": lambda m, x: x.index_select(1, m.tensor([0, 2])),
    "gather": lambda m, x: x.gather(1, positions(m, 2, 2, 6, 8)),
    "gather by positions laid as it": lambda m, x: x.gather(3, m.zeros_like(x, dtype=m.int64)),
    "index_select of the first": lambda m, x: x.transpose(2, 3).index_select(0, m.tensor([0, 1])),
    "an array after an ellipsis": lambda m, x: x[..., [0, 2]],
    "an array between slices": lambda m, x: x[:1, ..., [0, 2], 1:],
    "a mask after an ellipsis": lambda m, x: x[..., m.ones(6, 8) > 0],
    "repeat_interleave": lambda m, x: x.repeat_interleave(2, 1),
    "solve_triangular": lambda m, x: m.linalg.solve_triangular(x[..., :6], x, upper=True),
    "solve_triangular from the right": lambda m, x: m.linalg.solve_triangular(
        x[..., :6], x.mT, upper=False, left=False
    ),
    "cholesky": lambda m, x: m.linalg.cholesky(x @ x.mT + 9 * m.eye(6)),
    "cholesky_ex": lambda m, x: m.linalg.cholesky_ex(x @ x.mT + 9 * m.eye(6)).L,
    "scatter": lambda m, x: x.scatter(1, positions(m, 2, 2, 6, 8), 1.0),
    "index_copy": lambda m, x: x.index_copy(1, m.tensor([0]), m.ones(2, 1, 6, 8)),
    "index_fill": lambda m, x: x.index_fill(1, m.tensor([0]), 1.0),
    "index_put": lambda m, x: x.index_put((m.tensor([0]),), m.ones(4, 6, 8)),
    "select_scatter": lambda m, x: m.select_scatter(x, m.ones(2, 6, 8), 1, 0),
    "diagonal_scatter": lambda m, x: m.diagonal_scatter(x, m.ones(6, 8, 2)),
    "masked_scatter": lambda m, x: x.masked_scatter(x > 0.5, m.ones(2, 4, 6, 8)),
    "masked_fill": lambda m, x: x.masked_fill(x > 0.5, 0.0),
    "tril": lambda m, x: x.tril(),
    "lerp": lambda m, x: m.lerp(x, x * 2, m.full(IMAGES, 0.3)),
    "lerp by it": lambda m, x: m.lerp(m.ones(IMAGES), m.zeros(IMAGES), x),
    "cat": lambda m, x: m.cat([x, x], 1),
    "cat, one row-major": lambda m, x: m.cat([x, x.contiguous()], 1),
    "stack": lambda m, x: m.stack([x, x], 1),
    "cumsum": lambda m, x: x.cumsum(1),
    "cumprod": lambda m, x: x.cumprod(1),
    "cummax's indices": lambda m, x: x.cummax(1)[1],
    "topk": lambda m, x: x.topk(2, 1)[0],
    "softmax": lambda m, x: x.softmax(1),
    "attention": lambda m, x: m.nn.functional.scaled_dot_product_attention(x, x, x),
    "causal attention": lambda m, x: m.nn.functional.scaled_dot_product_attention(
        *(x.permute(0, 3, 2, 1),) * 3, is_causal=True
    ),
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(
        x, positions(m, 2, 6, 8), reduction="none"
    ),
    "one_hot": lambda m, x: m.nn.functional.one_hot((x > 0.5).long(), 2),
    "gcd": lambda m, x: m.gcd((x * 99).long(), (x * 70).long().contiguous()),
    "complex": lambda m, x: m.complex(x, x.contiguous()).abs(),
    "narrow_copy": lambda m, x: m.narrow_copy(x, 1, 0, 2),
}
OF_VOLUMES = {
    "conv3d": lambda m, x: m.nn.functional.conv3d(x, m.tensor(FILTERS)[..., None]),
    "max_pool3d": lambda m, x: m.nn.functional.max_pool3d(x, 2),
    "avg_pool3d": lambda m, x: m.nn.functional.avg_pool3d(x, 2),
    "adaptive_avg_pool3d": lambda m, x: m.nn.functional.adaptive_avg_pool3d(x, 2),
    "adaptive_max_pool3d": lambda m, x: m.nn.functional.adaptive_max_pool3d(x, (3, 2, 2)),
    "trilinear": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="trilinear"),
    "replicate": lambda m, x: m.nn.functional.pad(x, (1,) * 6, mode="replicate"),
    "group_norm": lambda m, x: m.nn.functional.group_norm(x, 2),
}
OF_SIGNALS = {
    "conv1d": lambda m, x: m.nn.functional.conv1d(x, m.tensor(FILTERS[..., 0])),
    "conv1d, filters laid": lambda m, x: m.nn.functional.conv1d(x, m.tensor(FILTERS)[..., 0]),
    "avg_pool1d": lambda m, x: m.nn.functional.avg_pool1d(x, 2),
    "max_pool1d": lambda m, x: m.nn.functional.max_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda m, x: m.nn.functional.adaptive_avg_pool1d(x, 2),
    "linear": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
    "batch_norm": lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True),
}


def long_strides(t):
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def compare(function, shape, layout):
    torch = torch_module()
    rows = []
    for m in (lucid_gpu, torch):
        x = laid(m, shape, layout).requires_grad_()
        result = function(m, x)
        if result.requires_grad:
            numbers = np.random.default_rng(2).standard_normal(result.shape).astype(np.float32)
            result.backward(m.tensor(numbers))
        rows.append((result, x.grad))
    (ours, our_grad), (theirs, their_grad) = rows
    assert long_strides(ours) == long_strides(theirs)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), 1e-4, 1e-4)
    assert (our_grad is None) is (their_grad is None)
    if our_grad is not None:
        assert long_strides(our_grad) == long_strides(their_grad)
        np.testing.assert_allclose(our_grad.numpy(), their_grad.numpy(), 1e-3, 1e-3)


KEEP_GAPS = ("select_scatter", "diagonal_scatter")  # in PyTorch only


@pytest.mark.parametrize("layout", ["channels last", "permuted", "gaps"])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_images(name, layout):
    if layout == "gaps" and name in KEEP_GAPS:
        pytest.skip("PyTorch's result has gaps too, ours has none: docs/differences.md")
    compare(OF_IMAGES[name], IMAGES, layout)


@pytest.mark.parametrize("name", OF_VOLUMES)
def test_volumes(name):
    compare(OF_VOLUMES[name], VOLUMES, "channels last")


@pytest.mark.parametrize("name", OF_SIGNALS)
def test_signals(name):
    signals = lambda m, x: OF_SIGNALS[name](m, x.squeeze(2))  # noqa: E731
    compare(signals, (2, 4, 1, 8), "channels last")


@pytest.mark.parametrize("kind", ["float64", "complex64"])
def test_float64_volumes_are_row_major_in_convolutions(kind):
    torch = torch_module()
    strides = []
    for m in (lucid_gpu, torch):
        x = laid(m, VOLUMES, "channels last").to(getattr(m, kind))
        filters = m.tensor(FILTERS)[..., None].to(getattr(m, kind))
        strides.append(long_strides(m.nn.functional.conv3d(x, filters)))
    assert strides[0] == strides[1]


def test_parts_of_complex_results_that_lie_in_another_order():
    rows = []
    for m in (lucid_gpu, torch_module()):
        x = m.arange(24.0).reshape(2, 3, 4).permute(1, 2, 0).clone()
        part = m.fft.fft(x, dim=1).real
        rest = part[1:]
        seen = part.as_strided((2, 2), (2, 4))
        rows.append([part.stride(), rest.storage_offset(), part.untyped_storage().nbytes()])
        rows[-1].append([round(n, 3) for n in seen.flatten().tolist()])
    assert rows[0] == rows[1]


def test_filters_alone_have_images_lie_channels_last():
    w = lucid_gpu.tensor(FILTERS).contiguous(memory_format=lucid_gpu.channels_last)
    result = lucid_gpu.nn.functional.conv2d(lucid_gpu.ones(IMAGES), w)
    assert result.is_contiguous(memory_format=lucid_gpu.channels_last)
    assert (result * 2).stride() == result.stride()


RESHAPED: dict[str, Any] = {
    "a convolution's result": lambda m: m.nn.functional.conv2d(
        m.ones(2, 3, 5, 5), m.ones(4, 3, 3, 3)
    ),
    "what an index selects": lambda m: m.arange(12.0).reshape(4, 3)[..., [0, 1]],
    "selected columns": lambda m: m.arange(12.0).reshape(4, 3)[:, [2, 0]],
    "a transform's real part": lambda m: m.fft.fft(m.ones(3, 4), dim=0).real,
    "an inverse": lambda m: m.linalg.inv(m.eye(3) * 2),
    "sorted": lambda m: m.arange(12.0).reshape(4, 3).t().sort(0)[0],
}
SHAPES: dict[str, Any] = {
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(1) if x.ndim > 2 else x.flatten(),
    "contiguous": lambda x: x.contiguous(),
    "unflatten": lambda x: x.unflatten(0, (1, -1)),
}


@pytest.mark.parametrize("how", SHAPES)
@pytest.mark.parametrize("name", RESHAPED)
def test_a_result_in_another_shape_is_a_view_where_pytorch_s_is(name: str, how: str) -> None:
    def run(m: Any) -> Any:
        x = RESHAPED[name](m)
        y = SHAPES[how](x)
        x.detach().add_(100)
        return y.tolist()

    np.testing.assert_allclose(run(lucid_gpu), run(torch_module()), atol=1e-5)


@pytest.mark.parametrize("name", ["qr", "inv", "sort", "conv2d"])
def test_memory_is_in_pytorch_s_order_before_it_is_lent(name: str) -> None:
    """An array, which keeps the memory where it is, may be the first to ask where it lies."""

    def run(m: Any) -> Any:
        x = m.tensor(np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32))
        images = m.arange(96.0).reshape(2, 4, 3, 4).contiguous(memory_format=m.channels_last)
        result = {
            "qr": lambda: m.linalg.qr(x)[1],
            "inv": lambda: m.linalg.inv(x),
            "sort": lambda: x.transpose(1, 2).sort(1)[0],
            "conv2d": lambda: m.nn.functional.conv2d(images, m.ones(4, 4, 1, 1) / 96),
        }[name]()
        array = result.detach().numpy()
        told = [[s // 4 for s in array.strides], list(result.stride())]
        result.untyped_storage().copy_(result.detach().clone().untyped_storage())
        return told, array.tolist(), result.tolist(), np.asarray(result.storage().tolist())

    (told, *values), (expected, *others) = run(lucid_gpu), run(torch_module())
    assert told == expected
    for one, other in zip(values, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def turned(m: Any, *shape: int) -> Any:
    """Numbers whose dimensions lie in the reverse order."""
    x = m.tensor(np.random.default_rng(3).standard_normal(shape[::-1]).astype(np.float32))
    return x.permute(*range(len(shape))[::-1])


RESULTS: dict[str, Any] = {
    **{
        equation: lambda m, e=equation: m.einsum(
            e, *[turned(m, *["abijk".index(k) + 2 for k in t]) for t in e.split("->")[0].split(",")]
        )
        for equation in (
            *("ij,kj->ki", "bij,bkj->bki", "bij,kj->kbi", "aij,bik->bakj", "ib,bja->aij", "ij->ji"),
            *("a,ba->ba", "bia,k->kiab", "bia->ab", "ai,ibk->kab"),
        )
    },
    "rfftn": lambda m: m.fft.rfftn(turned(m, 4, 5, 6)),
    "rfftn of two": lambda m: m.fft.rfftn(turned(m, 4, 5, 6), dim=(2, 0)),
    "rfft2": lambda m: m.fft.rfft2(m.ones(4, 5, 6)),
    "ihfft2": lambda m: m.fft.ihfft2(m.ones(4, 5, 6)),
    "nonzero": lambda m: m.ones(3, 4).nonzero(),
    "argwhere": lambda m: m.argwhere(turned(m, 3, 4)),
    "unravel_index": lambda m: m.unravel_index(m.arange(6).reshape(2, 3), (4, 5)),
    "lu_unpack": lambda m: m.lu_unpack(*m.linalg.lu_factor(turned(m, 4, 3) + m.eye(4, 3))),
    "lu_unpack of wide": lambda m: m.lu_unpack(*m.linalg.lu_factor(turned(m, 3, 4))),
    "matrix_power 0": lambda m: m.linalg.matrix_power(turned(m, 2, 2), 0),
    "matrix_power 1": lambda m: m.linalg.matrix_power(turned(m, 3, 2, 2), 1),
    "matrix_power -1": lambda m: m.linalg.matrix_power(m.eye(2) * 2, -1),
    "view_copy": lambda m: m.view_copy(turned(m, 3, 4), (2, 6)),
    "conv3d of one": lambda m: m.nn.functional.conv3d(volume(m, 1), m.ones(4, 4, 3, 3, 3)),
    "conv3d of two": lambda m: m.nn.functional.conv3d(volume(m, 2), m.ones(4, 4, 3, 3, 3)),
    "conv3d of wide filters": lambda m: m.nn.functional.conv3d(volume(m, 1), m.ones(4, 4, 1, 4, 4)),
    "conv3d in groups": lambda m: m.nn.functional.conv3d(
        volume(m, 1), m.ones(4, 2, 3, 3, 3), groups=2
    ),
    "conv_transpose3d of one": lambda m: m.nn.functional.conv_transpose3d(
        volume(m, 1), m.ones(4, 4, 3, 3, 3), stride=2, output_padding=1
    ),
    "max_pool3d without a batch": lambda m: m.nn.functional.max_pool3d(
        volume(m, 1)[0].clone(), 2, return_indices=True
    ),
    **{
        f"batch_norm of {shape} as {order}": lambda m, shape=shape, order=order: normalized(
            m, m.arange(24.0).reshape(shape).permute(order)
        )
        for shape, order in (
            ((1, 12, 2, 1), (0, 2, 1, 3)),
            ((1, 12, 2, 1), (0, 2, 3, 1)),
            ((12, 2, 1, 1), (2, 1, 3, 0)),
            ((1, 6, 2, 1, 2), (0, 4, 1, 3, 2)),
            ((2, 1, 12, 1), (0, 2, 1, 3)),
        )
    },
}


def normalized(m: Any, x: Any) -> Any:
    return m.nn.functional.batch_norm(x, None, None, training=True)


def volume(m: Any, n: int) -> Any:
    return m.ones(n, 4, 4, 4, 4).contiguous(memory_format=m.channels_last_3d)


@pytest.mark.parametrize("name", RESULTS)
def test_results_lie_as_pytorch_s(name: str) -> None:
    def run(m: Any) -> Any:
        result = RESULTS[name](m)
        parts = list(result) if isinstance(result, tuple) else [result]
        return [long_strides(part) for part in parts], [part.tolist() for part in parts]

    (strides, values), (expected, others) = run(lucid_gpu), run(torch_module())
    assert strides == expected
    for one, other in zip(values, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


INTO = {
    "add": lambda m, x, out: m.add(x, 1, out=out),
    "add of a row": lambda m, x, out: m.add(m.ones(x.shape[-1]), x, out=out),
    "neg": lambda m, x, out: m.neg(x, out=out),
    "where": lambda m, x, out: m.where(x > 0, x, -x, out=out),
    "cat": lambda m, x, out: m.cat([x, x], out=out),
    "cumsum": lambda m, x, out: m.cumsum(x, 0, out=out),
    "sum": lambda m, x, out: m.sum(x, 0, out=out),
    "bmm": lambda m, x, out: m.bmm(x, x.mT, out=out),
    "index_select": lambda m, x, out: m.index_select(x, 0, positions(m, 2), out=out),
}


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("name", INTO)
def test_an_out_that_was_resized_lies_as_the_result(name, order):
    def strides(m):
        x = m.arange(24.0).reshape(2, 3, 4).permute(order)
        out = m.empty(0)
        return INTO[name](m, x, out).stride(), out.stride(), out.tolist()

    assert strides(lucid_gpu) == strides(torch_module())


LYING = {
    "rot90 by nothing": lambda m, x: [m.rot90(x, 4, (0, 1))],
    "unique along 1": lambda m, x: m.unique(x, dim=1, return_counts=True),
    "unique_consecutive along the last": lambda m, x: [m.unique_consecutive(x, dim=-1)],
    "unsafe_split": lambda m, x: m.unsafe_split(x, 2, 1),
    "unsafe_split of a whole": lambda m, x: m.unsafe_split(x, 9, 0),
    "unsafe_chunk": lambda m, x: m.unsafe_chunk(x, 2, -1),
}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("name", LYING)
def test_what_selects_and_turns_lies_as_in_torch(name, order):
    def strides(m):
        results = LYING[name](m, m.arange(60.0).reshape(3, 4, 5).permute(order))
        return [([s for s, n in zip(r.stride(), r.shape) if n > 1], r.tolist()) for r in results]

    assert strides(lucid_gpu) == strides(torch_module())
