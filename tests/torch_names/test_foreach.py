"""torch._foreach_*: each op on lists, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import lucid_gpu._foreach as _foreach
import numpy as np
import pytest

import lucid_gpu
from tests import oracle

torch = oracle.torch_module()
SHAPES = ((3,), (2, 3), (), (0, 2), (4, 1))


def lists(module: Any, dtype: str, number: int, shapes: Any = SHAPES) -> list[list[Any]]:
    """Lists of tensors, all entries between 0.5 and 0.9, where every op has a value."""
    rng = np.random.default_rng(number)
    arrays = [[np.asarray(rng.uniform(0.5, 0.9, s), dtype) for s in shapes] for _ in range(3)]
    return [[module.tensor(a) for a in column] for column in arrays]


def calls() -> list[tuple[str, Any]]:
    """Names, and what is called beside the list: from two further lists."""
    found: list[tuple[str, Any]] = [(name, lambda a, b: ()) for name in _foreach.UNARY]
    for name in _foreach.BINARY:
        found += [(name, lambda a, b: (a,)), (name, lambda a, b: (0.75,))]
        found += [(name, lambda a, b: ([0.5 + i / 8 for i in range(len(a))],))]
    for name in ("addcmul", "addcdiv"):
        found += [(name, lambda a, b: (a, b)), (name, lambda a, b: (a, b, 0.5))]
        found += [(name, lambda a, b: (a, b, [i / 4 for i in range(len(a))]))]
    found += [("lerp", lambda a, b: (a, 0.3)), ("lerp", lambda a, b: (a, b))]
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "rest"), calls())
def test_as_pytorch(name: str, rest: Any, dtype: str) -> None:
    ours, theirs = lists(lucid_gpu, dtype, 0), lists(torch, dtype, 0)
    if name in _foreach.UNARY or name != "pow":
        mine = getattr(lucid_gpu, f"_foreach_{name}")(ours[0], *rest(*ours[1:]))
        right = getattr(torch, f"_foreach_{name}")(theirs[0], *rest(*theirs[1:]))
        assert type(mine) is tuple
        compare(mine, right)
    before = [t._version for t in ours[0]]
    assert getattr(lucid_gpu, f"_foreach_{name}_")(ours[0], *rest(*ours[1:])) is None
    getattr(torch, f"_foreach_{name}_")(theirs[0], *rest(*theirs[1:]))
    compare(ours[0], theirs[0])
    assert [t._version for t in ours[0]] == [v + 1 for v in before]


def compare(mine: Any, right: Any, rtol: float = 2e-6) -> None:
    for a, b in zip(mine, right, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol)
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        assert tuple(a.shape) == tuple(b.shape)


@pytest.mark.parametrize("name", ["norm", "powsum", "max", "clone"])
def test_reductions_and_copies(name: str) -> None:
    shapes = [s for s in SHAPES if 0 not in s]
    compare(
        getattr(lucid_gpu, f"_foreach_{name}")(lists(lucid_gpu, "float32", 1, shapes)[0]),
        getattr(torch, f"_foreach_{name}")(lists(torch, "float32", 1, shapes)[0]),
    )


def test_alpha_and_bfloat16() -> None:
    ours, theirs = lists(lucid_gpu, "float32", 2), lists(torch, "float32", 2)
    lucid_gpu._foreach_sub_(ours[0], ours[1], alpha=0.25)
    torch._foreach_sub_(theirs[0], theirs[1], alpha=0.25)
    compare(ours[0], theirs[0])
    halves = [[t.to(lucid_gpu.bfloat16) for t in ours[0]], [t.bfloat16() for t in theirs[0]]]
    lucid_gpu._foreach_mul_(halves[0], 0.3)
    torch._foreach_mul_(halves[1], 0.3)
    compare([t.float() for t in halves[0]], [t.float() for t in halves[1]], 2**-7)


def test_gradients_go_through_lists() -> None:
    x = [lucid_gpu.ones(2, requires_grad=True), lucid_gpu.ones(3, requires_grad=True)]
    product = lucid_gpu._foreach_mul(x, [2.0, 3.0])
    sum(p.sum() for p in product).backward()
    assert [t.grad.tolist() for t in x] == [[2.0] * 2, [3.0] * 3]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        lucid_gpu._foreach_add_(x, 1.0)


def test_a_list_of_another_length_is_refused() -> None:
    with pytest.raises(RuntimeError, match="same number of elements"):
        lucid_gpu._foreach_add([lucid_gpu.ones(2)], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        lucid_gpu._foreach_add_([], 1.0)


def test_lists_whose_memory_overlaps_are_written_one_after_the_other() -> None:
    x = lucid_gpu.arange(6.0)
    lucid_gpu._foreach_add_([x[:4], x[2:]], [x[1:5], x[:4]])
    assert x.tolist() == [1.0, 3.0, 6.0, 10.0, 9.0, 12.0]


def test_expanded_tensors_are_refused() -> None:
    for m in (lucid_gpu, torch):
        x = m.zeros(1).expand(3)
        for write in (m._foreach_sqrt_, lambda t, m=m: m._foreach_add_(t, 1.0)):
            with pytest.raises(RuntimeError, match="more than one element of the written-to"):
                write([m.ones(3), x])
        assert x.tolist() == [0.0] * 3 and x._version == 0


BY_NAME: list[tuple[str, Any]] = [
    ("mul", lambda a, b: {"scalar": 0.5}),
    ("mul", lambda a, b: {"scalars": [0.5 + i for i in range(len(a))]}),
    ("add", lambda a, b: {"other": a, "alpha": 3}),
    ("clamp_min", lambda a, b: {"scalar": 0.7}),
    ("pow", lambda a, b: {"exponent": 2.0}),
    ("addcmul", lambda a, b: {"tensor1": a, "tensor2": b}),
    (
        "addcdiv",
        lambda a, b: {"tensor1": a, "tensor2": b, "scalars": [0.5 * i for i, _ in enumerate(a)]},
    ),
    ("lerp", lambda a, b: {"tensors1": a, "weight": 0.3}),
    ("lerp", lambda a, b: {"tensors1": a, "weights": b}),
]


@pytest.mark.parametrize(("name", "named"), BY_NAME)
def test_operands_by_keyword(name: str, named: Any) -> None:
    ours, theirs = lists(lucid_gpu, "float64", 2), lists(torch, "float64", 2)
    mine = getattr(lucid_gpu, f"_foreach_{name}")(ours[0], **named(*ours[1:]))
    compare(mine, getattr(torch, f"_foreach_{name}")(theirs[0], **named(*theirs[1:])))
    getattr(lucid_gpu, f"_foreach_{name}_")(ours[0], **named(*ours[1:]))
    getattr(torch, f"_foreach_{name}_")(theirs[0], **named(*theirs[1:]))
    compare(ours[0], theirs[0])


def test_operands_that_are_missing_or_unknown_are_refused() -> None:
    a, b, _ = lists(lucid_gpu, "float32", 3)
    for wrong in (
        lambda: lucid_gpu._foreach_mul_(a),
        lambda: lucid_gpu._foreach_addcmul_(a, b),
        lambda: lucid_gpu._foreach_lerp(a, b, value=0.5),
        lambda: lucid_gpu._foreach_mul(a, b, alpha=2),
    ):
        with pytest.raises(TypeError, match="_foreach_.*(missing|takes)"):
            wrong()


INTO_LESS: list[tuple[str, tuple[Any, ...]]] = [
    ("add_", (2.5,)), ("add_", (1j,)), ("mul_", ([1.5, 2.0],)), ("div_", (2,)), ("div_", ([1, 2],)),
    ("maximum_", (0.5,)), ("clamp_min_", (0.5,)), ("addcdiv_", ("same", "same")),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(INTO_LESS)))
def test_in_place_refuses_results_of_a_higher_type(case: int) -> None:
    """Whole numbers are not cut in silence, and stay as they were."""
    name, operands = INTO_LESS[case]
    for m in (lucid_gpu, oracle.torch_module()):
        x = [m.tensor([1, 2]), m.tensor(3)]
        given = [[m.tensor([1, 2]), m.tensor(3)] if o == "same" else o for o in operands]
        with pytest.raises(RuntimeError):
            getattr(m, f"_foreach_{name}")(x, *given)
        assert [t.tolist() for t in x] == [[1, 2], 3]


def test_a_tensor_of_one_number_is_a_number(device: str) -> None:
    for m, where in ((lucid_gpu, device), (oracle.torch_module(), "cpu")):
        x = [
            m.tensor([1, 2], dtype=m.int32, device=where),
            m.tensor(3, dtype=m.int32, device=where),
        ]
        two = m.tensor(2, device=where)
        for name in ("add", "sub", "maximum"):
            made = getattr(m, f"_foreach_{name}")(x, two)
            assert [t.dtype for t in made] == [m.int32, m.int32], name
        assert [t.dtype for t in m._foreach_mul(x, two)] == [m.int32, m.int64]


def test_a_truth_is_not_subtracted() -> None:
    for m in (lucid_gpu, oracle.torch_module()):
        with pytest.raises(RuntimeError, match="Subtraction"):
            m._foreach_sub_([m.ones(2)], True)


def test_sparse_tensors() -> None:
    for m in (lucid_gpu, oracle.torch_module()):
        x = m.tensor([[1.0, 0.0], [0.0, 2.0]]).to_sparse()
        y = m.tensor([[0.0, 3.0], [0.0, 1.0]]).to_sparse()
        m._foreach_add_([x], [y])
        m._foreach_mul_([x, y], 2.0)
        assert x.to_dense().tolist() == [[2, 6], [0, 6]], m.__name__
        assert y.to_dense().tolist() == [[0, 6], [0, 2]], m.__name__
