"""Types that PyTorch refuses, in ops, losses and ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, same_error

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


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=f"{kind}: {name}")
        for kind, table in {
            "bool": BOOL, "integers": INTEGERS, "arguments": ARGUMENTS, "complex": COMPLEX,
            "losses": LOSSES, "out": OUT,
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
        return [*some, F.linear(x, x, out=x.new_zeros(2, 2)), m.where(x > 0, x, -x, out=x.clone())]

    agree(put, np.array([[0.1, -2.0], [1.5, 0.4]]), device=device, order=0)
