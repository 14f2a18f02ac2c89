"""Types that PyTorch refuses, in ops, losses and ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, modules, same_error

Call = Callable[[Any], Any]


def of(m: Any, dtype: str, *shape: int) -> Any:
    return m.ones(*shape, dtype=getattr(m, dtype))


def losses(m: Any) -> Any:
    return m.nn.functional


BOOL: dict[str, Call] = {
    "mm": lambda m: m.mm(of(m, "bool", 2, 2), of(m, "bool", 2, 2)),
    "matmul": lambda m: of(m, "bool", 2, 2) @ of(m, "bool", 2),
    "bmm": lambda m: m.bmm(of(m, "bool", 1, 2, 2), of(m, "bool", 1, 2, 2)),
    "mv": lambda m: m.mv(of(m, "bool", 2, 2), of(m, "bool", 2)),
    "dot": lambda m: m.dot(of(m, "bool", 2), of(m, "bool", 2)),
    "addmm": lambda m: m.addmm(*[of(m, "bool", 2, 2)] * 3),
    "not of floats": lambda m: ~m.ones(2),
    "linear": lambda m: losses(m).linear(of(m, "bool", 2, 2), of(m, "bool", 2, 2)),
    "cov": lambda m: m.cov(of(m, "bool", 2, 2)),
    "addcmul": lambda m: m.addcmul(*[of(m, "bool", 2)] * 3),
    "bincount": lambda m: m.bincount(of(m, "bool", 2)),
    "clamp": lambda m: m.clamp(of(m, "bool", 2), False, True),
    "clamp between tensors": lambda m: m.clamp(*[of(m, "bool", 2)] * 3),
    "sub": lambda m: m.ones(2) - of(m, "bool", 2),
    "sub of a number": lambda m: of(m, "bool", 2) - 1,
    "a number less": lambda m: 1.5 - of(m, "bool", 2),
    "less True": lambda m: m.ones(2) - True,
}
INTEGERS: dict[str, Call] = {
    "masked_select": lambda m: m.masked_select(m.ones(2), of(m, "uint8", 2)),
    "frac": lambda m: m.frac(of(m, "int64", 2)),
    "masked_fill by a vector": lambda m: m.ones(2).masked_fill(m.tensor(True), m.ones(1)),
    "addcdiv": lambda m: m.addcdiv(m.ones(2), of(m, "int64", 2), of(m, "int64", 2)),
    "inner": lambda m: m.inner(of(m, "int64", 2), m.ones(2)),
    "tensordot": lambda m: m.tensordot(of(m, "int64", 2, 2), m.ones(2, 2), 1),
    "clamp_min": lambda m: m.clamp_min(of(m, "uint8", 2), 300),
    "clamp_max": lambda m: of(m, "uint8", 2).clamp_max(300),
    "clamp_min_": lambda m: of(m, "int8", 2).clamp_min_(128),
    "masked_fill": lambda m: of(m, "uint8", 2).masked_fill(m.tensor([True, False]), 300),
    "masked_fill by inf": lambda m: of(m, "int64", 2).masked_fill(m.tensor(True), float("inf")),
}
ARGUMENTS: dict[str, Call] = {
    "topk along True": lambda m: m.ones(2, 2).topk(1, True),
    "narrow from a float": lambda m: m.ones(2).narrow(0, m.tensor(0.0), 1),
    "narrow from a vector": lambda m: m.ones(2).narrow(0, m.tensor([0]), 1),
    "expand before the first": lambda m: m.ones(2).expand(-1, -1),
    "tensor_split at floats": lambda m: m.tensor_split(m.ones(2), m.tensor(1.5), 0),
    "kthvalue of none": lambda m: m.kthvalue(m.ones(2, 0), 1, 1),
    "heaviside of complex": lambda m: m.heaviside(of(m, "complex64", 2), of(m, "complex128", 2)),
    "alpha with a gradient": lambda m: m.add(
        m.ones(2), m.ones(2), alpha=m.tensor(2.0, requires_grad=True)
    ),
    "value with a gradient": lambda m: m.addcmul(
        *[m.ones(2)] * 3, value=m.tensor(2.0, requires_grad=True)
    ),
    "float_power_ of float32": lambda m: m.ones(2).float_power_(2),
    "signbit into floats": lambda m: m.signbit(m.ones(2), out=m.ones(2)),
    "frexp into float64": lambda m: m.frexp(
        m.ones(2), out=(of(m, "float64", 2), of(m, "int32", 2))
    ),
    "all into floats": lambda m: m.all(m.ones(2, 2), 0, out=m.ones(2)),
    "cumsum of a type into another": lambda m: m.cumsum(
        m.ones(2), 0, dtype=m.float64, out=m.ones(2)
    ),
    "nonzero of parts into one": lambda m: m.nonzero(
        m.ones(2), as_tuple=True, out=of(m, "int64", 2)
    ),
    **{
        f"{name} of a number first": lambda m, name=name: getattr(m, name)(2, m.ones(2))
        for name in (
            *("atan2", "hypot", "maximum", "fmax", "logical_and", "eq", "lt", "copysign", "fmod"),
            *("max", "clamp_min", "rsub"),
        )
    },
    **{
        f"{name} of a number second": lambda m, name=name: getattr(m, name)(m.ones(2), 2)
        for name in ("atan2", "hypot", "maximum", "fmin", "logical_xor", "logaddexp")
    },
    "acos_ of two": lambda m: m.ones(2).acos_(2),
    "no tensor among tensors": lambda m: m.broadcast_tensors(m.ones(2), 2),
    "no tensor among blocks": lambda m: m.block_diag(m.ones(2), 2),
    "cat into integers": lambda m: m.cat([m.ones(2)], out=of(m, "int64", 2)),
    "irfft into complex": lambda m: m.fft.irfft(m.ones(2), out=of(m, "complex64", 2)),
    "max with indices into float64": lambda m: m.max(
        m.ones(2, 2), 0, out=(of(m, "float64", 2), of(m, "int64", 2))
    ),
    "unbind_copy into float64": lambda m: m.unbind_copy(m.ones(1), out=(of(m, "float64"),)),
    "cross into float64": lambda m: m.linalg.cross(*[m.ones(3)] * 2, out=of(m, "float64", 3)),
    "sort along a place beside stable": lambda m: m.ones(2).sort(0, stable=True),
    "argsort along a place beside stable": lambda m: m.argsort(m.ones(2), 0, stable=True),
    "index_put of a longer shape": lambda m: m.zeros(3).index_put(
        (m.tensor([0, 1, 2]),), m.ones(1, 3)
    ),
    "index_put_ of a longer shape, adding": lambda m: m.zeros(3).index_put_(
        (m.tensor(1),), m.ones(1), accumulate=True
    ),
    "nothing of another type at a mask": lambda m: of(m, "int64", 3).__setitem__(
        m.tensor([True, False, True]), m.tensor([])
    ),
    "a position where there is none": lambda m: m.ones(2, 0)[:, [0]],
    "bins that are no vector": lambda m: m.histogram(m.zeros(()), m.zeros(())),
    "no bins": lambda m: m.histogram(m.zeros(2), m.zeros(0)),
    "positions into floats": lambda m: m.searchsorted(m.ones(3), m.ones(3), out=m.ones(3)),
    "magnitudes into integers": lambda m: m.abs(of(m, "complex64", 2), out=of(m, "int64", 2)),
    "running sums of bools": lambda m: m.cumsum(m.ones(2), 0, dtype=m.bool),
    "running products of bools": lambda m: m.ones(2).cumprod(0, dtype=m.bool),
    "more threads than an int holds": lambda m: m.set_num_threads(2**31),
    "determinism by a number": lambda m: m.use_deterministic_algorithms(False, warn_only=1),
    "a loss of one number": lambda m: losses(m).nll_loss(m.tensor(1.0), m.tensor(0)),
    "no file": lambda m: m.from_file("/nowhere/at/all", size=2),
    "strides of another rank": lambda m: m.empty_strided((2, 3), (1,)),
    "a number without copying": lambda m: m.asarray(np.float64(1), copy=False),
    "one number among rows": lambda m: m.searchsorted(m.ones(2, 2), 1),
    "quantile into integers": lambda m: m.quantile(m.ones(2), 0.5, out=m.tensor(1)),
    "unflatten to nothing": lambda m: m.ones(2, 3).unflatten(1, []),
    "weights of another type": lambda m: m.histogram(m.ones(2), 2, weight=of(m, "float64", 2)),
}
COMPLEX: dict[str, Call] = {
    "masked_fill": lambda m: m.ones(2).masked_fill(m.tensor([True, False]), 1j),
    "deg2rad": lambda m: m.deg2rad(of(m, "complex64", 2)),
    "rad2deg": lambda m: m.rad2deg(of(m, "complex64", 2)),
}
LOSSES: dict[str, Call] = {
    **{
        f"{name} of integers": lambda m, name=name: getattr(losses(m), name)(
            of(m, "int64", 2), of(m, "int64", 2)
        )
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div")
    },
    "bce with integer targets": lambda m: losses(m).binary_cross_entropy_with_logits(
        m.ones(2), of(m, "int64", 2)
    ),
    "bce of integers": lambda m: losses(m).binary_cross_entropy_with_logits(
        of(m, "int64", 2), of(m, "int64", 2)
    ),
    "hinge": lambda m: losses(m).hinge_embedding_loss(of(m, "int64", 2), of(m, "int64", 2)),
    "soft margin": lambda m: losses(m).soft_margin_loss(of(m, "int64", 2), m.ones(2)),
    "nll": lambda m: losses(m).nll_loss(of(m, "int64", 2, 2), m.tensor([0, 1])),
    "multi margin": lambda m: losses(m).multi_margin_loss(of(m, "int64", 2, 2), m.tensor([0, 1])),
    "l1 of bools": lambda m: losses(m).l1_loss(m.ones(2), of(m, "bool", 2)),
}
OUT: dict[str, Call] = {
    name: lambda m, name=name, args=args: getattr(m, name)(
        m.ones(2, 2), *[m.ones(2, 2) if a is None else a for a in args],
        out=of(m, "float64", 2, 2),
    )
    for name, args in {
        "mm": (None,), "abs": (), "clamp": (0, 1), "tril": (), "neg": (), "softmax": (0,),
        "inverse": (), "matmul": (None,), "renorm": (2, 0, 1.0), "t_copy": (),
        "view_copy": ((2, 2),), "complex": (None,), "polar": (None,), "histc": (2,),
        "slice_scatter": (None,),
    }.items()
}  # fmt: skip

MIXED: dict[str, Call] = {
    "bias of linear": lambda m: losses(m).linear(m.ones(2, 3), m.ones(4, 3), of(m, "float64", 4)),
    "half bias of linear": lambda m: losses(m).linear(m.ones(3), m.ones(4, 3), of(m, "float16", 4)),
    "weight of layer_norm": lambda m: losses(m).layer_norm(m.ones(2, 3), (3,), of(m, "float64", 3)),
    "half bias of layer_norm": lambda m: losses(m).layer_norm(
        m.ones(2, 3), (3,), m.ones(3), of(m, "float16", 3)
    ),
    "weight of group_norm": lambda m: losses(m).group_norm(
        m.ones(2, 4), 2, of(m, "float64", 4), of(m, "float64", 4)
    ),
    "figures of batch_norm": lambda m: losses(m).batch_norm(
        m.ones(2, 4), of(m, "float64", 4), of(m, "float64", 4)
    ),
    "weight of batch_norm in training": lambda m: losses(m).batch_norm(
        m.ones(2, 4), None, None, of(m, "float64", 4), of(m, "float64", 4), True
    ),
    "weight of instance_norm": lambda m: losses(m).instance_norm(
        m.ones(2, 4, 3), None, None, of(m, "float64", 4), of(m, "float64", 4)
    ),
    "vecdot": lambda m: m.linalg.vecdot(m.ones(2), of(m, "float64", 2)),
    "where out of bounds": lambda m: m.index_select(m.ones(2, 0), 1, m.tensor([0])),
    "a format of sparse": lambda m: m.zeros_like(
        m.ones(2, 2).to_sparse(), memory_format=m.preserve_format
    ),
    "beyond a storage": lambda m: _reaching_further(m.ones(3)),
    "a class of FloatTensor": lambda m: type("Mine", (m.FloatTensor,), {}),
    "elements on meta": lambda m: m.UntypedStorage(4, device="meta")[0],
    "a list of meta": lambda m: m.TypedStorage([1, 2], device="meta").tolist(),
}


WHOLE: dict[str, Call] = {
    f"{name} with {number} beside {kind}": lambda m, call=call, number=number, kind=kind: call(
        m, of(m, kind, 2), number
    )
    for name, call in {
        "where": lambda m, x, n: m.where(m.tensor([True, False]), x, n),
        "where of a number": lambda m, x, n: m.where(m.tensor([True, False]), n, x),
        "where as a method": lambda m, x, n: x.where(m.tensor([True, False]), n),
        "pow": lambda m, x, n: m.pow(x, n),
        "**": lambda m, x, n: x**n,
        "pow_": lambda m, x, n: x.pow_(n),
    }.items()
    for kind, number in (("int8", 128), ("uint8", 256), ("int16", 2**15), ("int32", 2**31))
}


def _reaching_further(x: Any) -> Any:
    return x.set_(x.untyped_storage(), 5, x.size())


POOLS = ("avg_pool2d", "max_pool2d")
SENTENCES: dict[str, tuple[Call, str]] = {
    "addition into integers": (
        lambda m: m.add(m.ones(2), 1, out=of(m, "int64", 2)),
        "result type Float can't be cast to the desired output type Long",
    ),
    "half into int8 in place": (
        lambda m: of(m, "int8", 2).mul_(of(m, "float16", 2)),
        "result type Half can't be cast to the desired output type Char",
    ),
    "mean of int16": (lambda m: of(m, "int16", 2).mean(), "Got: Short"),
    "softmax of uint8": (lambda m: of(m, "uint8", 2).softmax(0), "not implemented for 'Byte'"),
    "complex of two types": (
        lambda m: m.complex(m.ones(2), of(m, "float64", 2)),
        "Expected object of scalar type Float but got scalar type Double for second argument",
    ),
    "cummax into int16": (
        lambda m: m.cummax(m.ones(2), 0, out=(of(m, "int16", 2), of(m, "int64", 2))),
        "expected scalar_type Float but found Short",
    ),
    "a split at floats": (
        lambda m: m.tensor_split(m.ones(4), m.tensor(2.0)), "dtype of long, but got Float",
    ),
    "a storage of another type": (
        lambda m: m.tensor([]).new(m.LongStorage([1])), "Expected a Storage of type Float",
    ),
    "grid of another type": (
        lambda m: m.meshgrid(m.ones(1), m.ones(1, device="meta"), indexing="ij"),
        "meshgrid expects all tensors to have the same device",
    ),
    "dot": (lambda m: m.dot(m.ones(1), of(m, "float64", 3)), "expected both vectors to have same"),
    "cov by a matrix": (
        lambda m: m.cov(m.ones(5), fweights=of(m, "int64", 5, 5)), "one or fewer dimensions",
    ),
    "cov by integers": (
        lambda m: m.cov(m.ones(5), aweights=of(m, "int64", 5)), "to have floating point dtype",
    ),
    "cov by too few": (lambda m: m.cov(m.ones(5), aweights=m.ones(1)), "but got 1 != 5"),
    "gradient": (lambda m: m.gradient(m.ones(3, 3), dim=(1, 1)), "dim 1 appears multiple times"),
    "aminmax": (lambda m: m.aminmax(m.ones(0)), "over an empty dimension"),
    "prelu": (lambda m: losses(m).prelu(m.ones(()), m.ones(2)), "zero-dim input tensor"),
    "narrow": (lambda m: m.narrow(m.ones(3), 0, 0, -1), "length must be non-negative"),
    "gather": (
        lambda m: m.gather(m.ones(1, 1), 1, of(m, "int64", 2, 2)), "at dimension 0 expected index",
    ),
    "scatter": (
        lambda m: m.scatter(m.ones(3, 5), 0, of(m, "int64", 2, 2), m.ones(2, 5, 2)),
        "same number of dimensions as src tensor",
    ),
    "multinomial": (lambda m: m.multinomial(-m.ones(3), 2, True), "probability entry < 0"),
    "cat": (lambda m: m.cat([m.ones(2), m.ones(2, 2)]), "same number of dimensions: got 1 and 2"),
    "movedim": (lambda m: m.movedim(m.ones(2, 3), (0, -2), (0, 1)), "`source` ([0, -2])"),
    "view": (lambda m: m.ones(1).view(0, -1), "shape '[0, -1]' is invalid for input of size 1"),
    "mean": (lambda m: m.ones(2).mean(dtype=m.int64), "Optional dtype must be"),
    "linspace": (lambda m: m.linspace(m.ones(2), 1, 2), "but got start with 1 dimension(s)"),
    "logspace": (lambda m: m.logspace(m.ones(2), m.ones(2), 2), "and end with 1 dimension(s)"),
    "adaptive": (
        lambda m: losses(m).adaptive_avg_pool2d(m.ones(2, 2), (2, 2)), "should be at least 3",
    ),
    "margin": (
        lambda m: losses(m).multi_margin_loss(m.ones(5, 4), m.ones(5), reduction="abc"),
        "abc is not a valid value for reduction",
    ),
    "margin's weight": (
        lambda m: losses(m).multi_margin_loss(
            m.ones(5, 4), of(m, "int64", 5), weight=m.ones(5, 4)
        ),
        "weight must be one-dimensional",
    ),
    "histogram of fewer weights": (
        lambda m: m.histogram(m.ones(4), 3, weight=m.ones(1)), "same shape"
    ),
    "histogramdd of one": (lambda m: m.histogramdd(m.ones(4, 2), [3]), "equal to the innermost"),
    "histogramdd without parts": (
        lambda m: m.histogramdd(m.ones(4, 2), [3, 0]), "but got 0 for dimension 1",
    ),
    "histogramdd within too little": (
        lambda m: m.histogramdd(m.ones(4, 2), 2, range=(0.0, 1.0)), "should have 4 elements",
    ),
    "histogramdd by others": (
        lambda m: m.histogramdd(m.ones(4, 2), 2, weight=m.ones(3)), "excluding its innermost",
    ),
    "groups": (
        lambda m: losses(m).conv2d(m.ones(2, 2, 4, 3), m.ones(2, 2, 1, 3), groups=3),
        "to be at least 3 at dimension 0",
    ),
    "stride": (
        lambda m: losses(m).conv2d(m.ones(1, 1, 4, 4), m.ones(1, 2, 2, 3), stride=-1),
        "non-positive stride is not supported",
    ),
    **{
        f"padding of {name}": (
            lambda m, name=name: getattr(losses(m), name)(m.ones(0, 1, 49), 2, 50, -1),
            "pad must be non-negative, but got pad: -1",
        )
        for name in POOLS
    },
    **{
        f"much padding of {name}": (
            lambda m, name=name: getattr(losses(m), name)(m.ones(0, 1, 49), 2, 50, 4),
            "but got pad=4, kernel_size=2 and dilation=1",
        )
        for name in POOLS
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_in_the_words_of_torch(name: str) -> None:
    call, words = SENTENCES[name]
    for module, _ in modules():
        with pytest.raises((RuntimeError, ValueError)) as caught:
            call(module)
        assert words in str(caught.value)
    same_error(call)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=f"{kind}: {name}")
        for kind, table in {
            "bool": BOOL, "integers": INTEGERS, "arguments": ARGUMENTS, "complex": COMPLEX,
            "losses": LOSSES, "out": OUT, "mixed": MIXED, "whole": WHOLE,
        }.items()
        for name, call in table.items()
    ],
)  # fmt: skip
def test_torch_refuses_it_too(call: Call) -> None:
    same_error(call)


def test_a_bool_may_be_compared_with_floats(device: str) -> None:
    x, seen = np.array([0.5, 2.0]), np.array([True, False])

    def compared(m: Any, x: Any, seen: Any) -> Any:
        F = m.nn.functional
        return F.mse_loss(x, seen), F.mse_loss(seen, x.detach()), F.huber_loss(x, seen)

    agree(compared, x, seen, device=device, order=0)


def test_an_empty_index_may_have_any_rank(device: str) -> None:
    def read(m: Any, x: Any, wide: Any) -> Any:
        return m.gather(x, 0, wide), x.scatter(0, wide, x), m.gather(x, 0, wide.reshape(-1))

    agree(read, np.arange(3.0), np.zeros((0, 5), np.int64), device=device, order=0)


def test_results_are_put_where_out_says(device: str) -> None:
    def put(m: Any, x: Any) -> Any:
        F, x = m.nn.functional, x.detach()
        calls = [F.gelu, F.softplus, F.logsigmoid, F.hardshrink, F.softshrink]
        some = [f(x, out=x.new_zeros(2, 2)) for f in calls]
        z = m.complex(x, x)
        some += [m.abs(z, out=m.zeros_like(z)), m.abs(z, out=x.double().zero_())]
        return [*some, F.linear(x, x, out=x.new_zeros(2, 2)), m.where(x > 0, x, -x, out=x.clone())]

    agree(put, np.array([[0.1, -2.0], [1.5, 0.4]]), device=device, order=0)


@pytest.mark.parametrize("other", [1, 1.5, True, "0-d"])
@pytest.mark.parametrize("first", [True, False])
def test_bool_is_clamped_between_a_bool_and_a_wider_number(
    other: Any, first: bool, device: str
) -> None:
    def clamped(m: Any, x: Any) -> Any:
        bound = m.tensor(1, device=x.device) if other == "0-d" else other
        low, high = (False, bound) if first else (bound, True)
        try:
            return m.clamp(x, low, high)
        except NotImplementedError:
            return m.zeros(())

    agree(clamped, np.array([True, False]), device=device, order=0)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
def test_bounds_that_are_tensors_give_a_type_that_out_converts(name: str, device: str) -> None:
    def bounded(m: Any, x: Any, y: Any) -> Any:
        out = m.empty(0, dtype=m.float32, device=x.device)
        return getattr(m, name)(x.detach().double(), y, out=out)

    agree(bounded, np.array([0.5, -2.0]), np.array([1, 2]), device=device, order=0)
