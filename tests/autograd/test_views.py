"""Views and in-place writes: one scenario a sentence, run on both modules."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives, same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

IN_MODE = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the {} block"
)
MULTIPLE = (
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. You should replace the inplace operation by an "
    "out-of-place one."
)
IS_WRITTEN = "is a view and is being modified inplace."
OVERLAP = "more than one element of the written-to tensor refers to a single memory location"


def leaf(m: Any) -> Any:
    return m.tensor([1.0, 2.0, 3.0, 4.0], dtype=m.float64, requires_grad=True)


def base(m: Any) -> Any:
    return leaf(m) * 1


def under(mode: str, m: Any, make: Callable[[], Any]) -> Any:
    with getattr(m, mode)():
        return make()


def write_of_a_view_made_under_no_grad(m: Any) -> Any:
    b = base(m)
    under("no_grad", m, lambda: b[:2]).mul_(2)


def write_of_a_view_of_a_view_made_under_no_grad(m: Any) -> Any:
    b = m.zeros(4, dtype=m.float64)
    under("no_grad", m, lambda: b[:2])[:1].add_(leaf(m)[:1])


def write_of_a_view_of_a_leaf_made_under_no_grad(m: Any) -> Any:
    x = leaf(m)
    under("no_grad", m, lambda: x[:2]).add_(1)


def write_of_parts_made_under_no_grad(m: Any) -> Any:
    b = base(m)
    under("no_grad", m, lambda: b.split(2))[0].add_(1)


def write_of_a_view_made_in_inference_mode(m: Any) -> Any:
    b = base(m)
    under("inference_mode", m, lambda: b[:2]).mul_(2)


def write_with_grad_of_a_constant_view_made_in_inference_mode(m: Any) -> Any:
    b = m.zeros(4, dtype=m.float64)
    under("inference_mode", m, lambda: b[:2]).add_(leaf(m)[:2])


def write_of_an_unbound_row(m: Any) -> Any:
    base(m).view(2, 2).unbind(0)[0].mul_(2)


def write_of_an_iterated_row(m: Any) -> Any:
    for row in base(m).view(2, 2):
        row.mul_(2)


def write_of_a_split_part(m: Any) -> Any:
    base(m).split(2)[1].mul_(2)


def write_of_a_part_of_a_given_size(m: Any) -> Any:
    base(m).split_with_sizes([1, 3])[1].mul_(2)


def write_of_a_chunk(m: Any) -> Any:
    base(m).chunk(2)[0].mul_(2)


def write_of_a_view_of_a_chunk(m: Any) -> Any:
    base(m).chunk(2)[0][:1].mul_(2)


def write_of_a_part_of_a_leaf(m: Any) -> Any:
    leaf(m).split(2)[0].add_(1)


def history_of_a_part_whose_base_was_written(m: Any) -> Any:
    b = base(m)
    part = b.unbind(0)[0]
    b.mul_(2)
    return part.grad_fn


def use_of_a_part_whose_base_was_written(m: Any) -> Any:
    b = base(m)
    part = b.unbind(0)[0]
    b.mul_(2)
    return part * leaf(m)  # refused at this line


def write_of_a_leaf(m: Any) -> Any:
    leaf(m).add_(1)


def write_of_a_view_of_a_leaf(m: Any) -> Any:
    leaf(m)[:2].add_(1)


def write_of_a_view_of_a_view_of_a_leaf(m: Any) -> Any:
    leaf(m).view(2, 2)[0].zero_()


def write_of_a_view_taken_before_its_base_required_grad(m: Any) -> Any:
    x = m.zeros(4)
    view = x[:2]
    x.requires_grad_()
    view.add_(1)


def assignment_to_a_leaf(m: Any) -> Any:
    leaf(m)[0] = 1


def assignment_to_chosen_elements_of_a_leaf(m: Any) -> Any:
    leaf(m)[m.tensor([0, 2])] = 1


def out_is_a_leaf(m: Any) -> Any:
    m.mul(m.ones(4, dtype=m.float64), 2, out=leaf(m))


def out_of_what_requires_grad(m: Any) -> Any:
    m.mul(leaf(m), 2, out=m.zeros(4, dtype=m.float64))


def write_of_an_expanded_tensor(m: Any) -> Any:
    m.zeros(1).expand(3).add_(1)


def fill_of_an_expanded_tensor_by_another(m: Any) -> Any:
    m.zeros(1).expand(3).fill_(m.ones(()))


def step_of_an_expanded_parameter(m: Any) -> Any:
    x = m.zeros(1).expand(3).requires_grad_()
    x.grad = m.ones(3)
    m.optim.SGD([x], 0.1).step()


def recorded_write_of_an_expanded_tensor(m: Any) -> Any:
    base(m)[:1].expand(3).mul_(2)


def assignment_to_elements_that_are_one(m: Any) -> Any:
    m.zeros(1).expand(3)[:2] = 1


def leaf_that_takes_other_memory(m: Any) -> Any:
    leaf(m).set_(m.zeros(2, dtype=m.float64))


def memory_of_another_type(m: Any) -> Any:
    m.zeros(2).set_(m.zeros(2, dtype=m.float64))


def write_of_a_recorded_view_of_a_silent_view(m: Any) -> None:
    with m.no_grad():
        y = m.zeros(2).view(2)
    y.requires_grad_()
    z = y.view(2)
    z /= 2


def detach_of_a_view_in_place(m: Any) -> Any:
    base(m)[:2].detach_()


REFUSED: dict[Callable[[Any], Any], str] = {
    write_of_a_view_made_under_no_grad: IN_MODE.format("no_grad"),
    write_of_a_view_of_a_view_made_under_no_grad: IN_MODE.format("no_grad"),
    write_of_a_view_of_a_leaf_made_under_no_grad: IN_MODE.format("no_grad"),
    write_of_parts_made_under_no_grad: IN_MODE.format("no_grad"),
    write_of_a_view_made_in_inference_mode: IN_MODE.format("inference_mode"),
    write_with_grad_of_a_constant_view_made_in_inference_mode: IN_MODE.format("inference_mode"),
    write_of_an_unbound_row: f"Output 0 of Unbind {IS_WRITTEN} {MULTIPLE}",
    write_of_an_iterated_row: MULTIPLE,
    write_of_a_split_part: f"Output 1 of Split {IS_WRITTEN} {MULTIPLE}",
    write_of_a_part_of_a_given_size: "Output 1 of SplitWithSizes is a view and is being modified",
    write_of_a_chunk: MULTIPLE,
    write_of_a_view_of_a_chunk: "Output 0 of Slice is a view and is being modified",
    write_of_a_part_of_a_leaf: MULTIPLE,
    history_of_a_part_whose_base_was_written: "Output 0 of Unbind is a view and its base or "
    "another view of its base has been modified",
    use_of_a_part_whose_base_was_written: "its base or another view of its base has been modified",
    write_of_a_leaf: "a leaf Variable that requires grad is being used in an in-place operation.",
    write_of_a_view_of_a_leaf: "a view of a leaf Variable that requires grad is being used",
    write_of_a_view_of_a_view_of_a_leaf: "a view of a leaf Variable that requires grad",
    write_of_a_view_taken_before_its_base_required_grad: "a view of a leaf Variable",
    assignment_to_a_leaf: "a view of a leaf Variable that requires grad is being used",
    assignment_to_chosen_elements_of_a_leaf: "a leaf Variable that requires grad is being used",
    out_is_a_leaf: "out=... arguments don't support automatic differentiation",
    out_of_what_requires_grad: "out=... arguments don't support automatic differentiation",
    write_of_an_expanded_tensor: OVERLAP,
    fill_of_an_expanded_tensor_by_another: OVERLAP,
    step_of_an_expanded_parameter: OVERLAP,
    recorded_write_of_an_expanded_tensor: OVERLAP,
    assignment_to_elements_that_are_one: OVERLAP,
    leaf_that_takes_other_memory: "a leaf Variable that requires grad is being used",
    memory_of_another_type: "Could not set tensor of type",
    write_of_a_recorded_view_of_a_silent_view: "Output 0 of View is a view of a view which was "
    "created in no_grad mode and is being modified inplace",
    detach_of_a_view_in_place: "Can't detach views in-place. Use detach() instead",
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.__name__)
def test_refused_with_torchs_sentence(case: Callable[[Any], Any]) -> None:
    same_error(case, REFUSED[case])


@pytest.mark.parametrize("use", ["gt", "isnan", "detach", "no_grad"])
def test_a_view_without_history_is_read_where_no_gradient_is_taken(use: str) -> None:
    def scenario(m: Any) -> Any:
        b = base(m)
        part = b.unbind(0)[1]
        b.mul_(2)
        if use == "no_grad":
            return under(use, m, lambda: part * 3).tolist()
        return {
            "gt": lambda: part > 3,
            "isnan": lambda: part.isnan(),
            "detach": lambda: part.detach() * 2,
        }[use]().tolist()

    assert scenario(lucid_gpu) == scenario(torch_module())


def test_a_refused_write_changes_nothing(device: str) -> None:
    x = lucid_gpu.ones(4, device=device, requires_grad=True)
    b = x * 1
    part = b.split(2)[0]
    with pytest.raises(RuntimeError, match="multiple views"):
        part.mul_(2)
    assert b.tolist() == [1.0] * 4
    assert b._version == part._version == 0
    b.sum().backward()
    assert x.grad.tolist() == [1.0] * 4


# --- what is allowed -----------------------------------------------------------------------------


def writes_under_the_mode_the_view_was_made_in(m: Any) -> Any:
    b = base(m)
    with m.no_grad():
        view = b[:2]
        view.mul_(2)
    return b.tolist(), b._version, view._version


def a_plain_write_of_a_silent_view_of_a_constant(m: Any) -> Any:
    b = m.zeros(4)
    view = under("no_grad", m, lambda: b[:2])
    view.add_(1)
    return b.tolist(), b.requires_grad


def a_plain_write_of_a_view_made_in_inference_mode(m: Any) -> Any:
    b = m.zeros(4)
    view = under("inference_mode", m, lambda: b[:2])
    view.add_(1)
    return b.tolist(), b._version, view.is_inference()


def writes_of_unsafe_parts(m: Any) -> Any:
    x = leaf(m)
    b = x * 1
    parts = (*b.unsafe_split(2), *b.unsafe_chunk(4), *b.unsafe_split_with_sizes([1, 3]))
    parts[0].mul_(2)
    (parts[0] * parts[1]).sum().backward()
    return b.tolist(), x.grad.tolist(), parts[0]._is_view(), b._version, parts[0]._version


def writes_of_slices_made_by_tensor_split(m: Any) -> Any:
    x = leaf(m)
    b = x * 1
    b.tensor_split(3)[0].mul_(2)
    b.tensor_split([1, 3])[2].mul_(3)
    b.sum().backward()
    return [len(part) for part in b.tensor_split(3)], x.grad.tolist()


def a_write_of_a_view_makes_the_base_require_grad(m: Any) -> Any:
    x = leaf(m)
    b = m.zeros(4, dtype=m.float64)
    view, other = b[:2], b[1:3]
    before = b.is_leaf, b.requires_grad, view.requires_grad
    view.add_(x[:2])
    after = [(t.requires_grad, t.is_leaf, t._version) for t in (b, view, other)]
    (b.sum() + other.sum() * 10).backward()
    return before, after, type(b.grad_fn).__name__, x.grad.tolist()


def a_disjoint_view_belongs_to_the_same_history(m: Any) -> Any:
    b = m.zeros(4, dtype=m.float64)
    view, other = b[:2], b[2:]
    view.add_(leaf(m)[:2])
    return other.requires_grad, other.is_leaf


def other_views_find_their_history_anew(m: Any) -> Any:
    x = leaf(m)
    b = x * 1
    view, other = b[:2], b[1:]
    before = other.grad_fn
    view.mul_(3)
    now = other.grad_fn
    other.sum().backward()
    kept = before is not now, other.grad_fn is now
    return kept, type(now.next_functions[0][0]).__name__, x.grad.tolist()


def a_gradient_of_the_base_goes_through_its_views(m: Any) -> Any:
    b = base(m)
    view = b[:2]
    view.mul_(3)
    return [g.tolist() for g in m.autograd.grad(view.sum() + b.sum() * 10, (b,))]


def a_view_of_a_view_of_a_written_base(m: Any) -> Any:
    x = leaf(m)
    b = x * 1
    inner = b.view(2, 2).t()[1]
    b[1:3].mul_(m.tensor([10.0, 100.0], dtype=m.float64))
    inner.add_(x[:2])
    (b * b).sum().backward()
    return b.tolist(), inner.tolist(), x.grad.tolist()


def second_derivatives_go_through_writes(m: Any) -> Any:
    x = leaf(m)
    b = x * x
    b[:2].mul_(x[2:])
    b.t()[1:].pow_(2)
    (g,) = m.autograd.grad(b.sum(), x, create_graph=True)
    return g.tolist(), [h.tolist() for h in m.autograd.grad((g * g).sum(), x)]


def a_base_is_never_a_view(m: Any) -> Any:
    b = base(m)
    first = b[:3]
    second = first[:2]
    third = second.view(2, 1)
    bases = [view._base is b for view in (first, second, third)]
    return bases, b._base is None, b._is_view(), third._is_view()


def what_is_a_view(m: Any) -> Any:
    b = m.zeros(2, 2)
    views = [b.view_as(b), b.reshape(4), b.t(), b.T, b.mT, b.expand(3, 2, 2), b[...], b[0], b[None],
             b.narrow(0, 0, 1), b.split(1)[0], b.unbind()[1], b.squeeze(), b.flatten()]  # fmt: skip
    others = [b.t().reshape(4), b.clone(), b * 1, b.detach(), b.data, b[[0, 1]], b.contiguous()]
    return [v._base is b for v in views], [o._is_view() for o in others]


def a_view_made_under_no_grad_is_a_view(m: Any) -> Any:
    b = base(m)
    view = under("no_grad", m, lambda: b[:2][:1])
    return view._is_view(), view._base is b, view.grad_fn is None


def memory_is_shared_with_a_reshaped_constant(m: Any) -> Any:
    b = m.zeros(4)
    for view in (b.reshape(2, 2), b.view(2, 2), b.flatten(), b.unsqueeze(0), b.squeeze()):
        view.add_(1)
    return b.tolist(), b._version


def is_leaf_after_a_write(m: Any) -> Any:
    x = leaf(m)
    b = m.zeros(4, dtype=m.float64)
    before = b.is_leaf
    b.add_(x)
    c = m.ones(4, dtype=m.float64)
    c *= x
    return before, b.is_leaf, b.requires_grad, c.is_leaf


def views_and_detached_tensors_share_the_count(m: Any) -> Any:
    b = m.zeros(4)
    view, apart = b[:2], b.detach()
    view.add_(1)
    apart.add_(1)
    b.zero_()
    b[0] = 1
    return b._version, view._version, apart._version, apart.tolist()


def data_counts_its_own_writes(m: Any) -> Any:
    x = leaf(m)
    x.data.fill_(3)
    x.data[0] = 9
    data = x.data
    data.add_(1)
    return x._version, data._version, x.data._version, x.tolist()


def data_assigned_keeps_the_count(m: Any) -> Any:
    x = leaf(m)
    with m.no_grad():
        x.add_(1)
    y = m.zeros(4, dtype=m.float64)
    y.add_(1)
    y.add_(1)
    x.data = y
    first = x._version, y._version
    y.add_(1)
    second = x._version, y._version
    with m.no_grad():
        x.mul_(2)
    return first, second, x._version, y._version, x.tolist(), y.tolist(), x.requires_grad


def set_takes_memory_and_counts(m: Any) -> Any:
    x, y = m.zeros(4), m.ones(2)
    x.set_(y)
    first = x.tolist(), x._version
    x.add_(1)
    return first, y.tolist(), x._version, y._version


def a_view_of_memory_its_base_has_left(m: Any) -> Any:
    x = leaf(m)
    b = x * 2
    view = b[:1]
    b.data = m.zeros(4, dtype=m.float64)
    with m.no_grad():
        view.mul_(3)
    b.sum().backward()
    return b.tolist(), view.tolist(), x.grad.tolist()


def data_of_another_shape_and_type(m: Any) -> Any:
    x = leaf(m)
    x.sum().backward()
    x.data = m.zeros(2, dtype=m.float32)
    y = m.zeros(2)
    y.data = m.ones(3, dtype=m.int64)
    return tuple(x.shape), x.is_leaf, x.grad.tolist(), y.tolist()


def a_write_under_no_grad_counts(m: Any) -> Any:
    x = leaf(m)
    b = x * 1
    with m.no_grad():
        x.add_(1)
        x[:2].mul_(2)
        b.add_(1)
    return x._version, x.is_leaf, x.requires_grad, x.tolist(), b._version, b.requires_grad


def out_under_no_grad(m: Any) -> Any:
    out = m.zeros(4, dtype=m.float64)
    with m.no_grad():
        m.mul(leaf(m), 2, out=out)
    return out.tolist(), out.requires_grad, out._version


def what_may_be_written_though_elements_are_one(m: Any) -> Any:
    b = m.zeros(1)
    b.expand(3).fill_(1)
    b.expand(3)[0] = 5
    b.expand(1).add_(1)
    c = m.zeros(2, 1)
    c.expand(2, 3)[0, :1].add_(1)
    return b.tolist(), c.tolist()


def retained_gradients_follow_the_value(m: Any) -> Any:
    x = leaf(m)
    y, z = x * 2, x * 2
    y.retain_grad()
    z.retain_grad()
    y.mul_(3)
    z[:2].mul_(3)
    (y + z).sum().backward()
    return y.grad.tolist(), z.grad.tolist(), x.grad.tolist()


def a_write_through_a_complex_view_of_real_memory(m: Any) -> Any:
    found = []
    for part in (slice(None), slice(1, 2)):
        x = m.arange(6.0).view(3, 2).requires_grad_()
        y = x.clone()
        m.view_as_complex(y)[part].mul_(2)
        z = x.clone()
        m.view_as_real(m.view_as_complex(z)).mul_(3)
        w = x.clone()
        m.view_as_complex(w)[part].fill_(1)
        (y.square() + z.square() + w.square()).sum().backward()
        found.append(x.grad.tolist())
    return found


def elements_that_are_none_seen_as_bytes(m: Any) -> Any:
    v = m.zeros(0, 5, 4).view(m.uint8)
    return list(v.shape), v.stride()


def bytes_seen_as_another_type_are_no_view(m: Any) -> Any:
    y = leaf(m) * 1
    v = y.view(m.int32)
    y.detach().add_(1)
    return v._is_view(), v.requires_grad, v._version, v.tolist()


AGREED = [
    writes_under_the_mode_the_view_was_made_in, a_plain_write_of_a_silent_view_of_a_constant,
    a_plain_write_of_a_view_made_in_inference_mode, writes_of_unsafe_parts,
    writes_of_slices_made_by_tensor_split, a_write_of_a_view_makes_the_base_require_grad,
    a_disjoint_view_belongs_to_the_same_history, other_views_find_their_history_anew,
    a_gradient_of_the_base_goes_through_its_views, a_view_of_a_view_of_a_written_base,
    second_derivatives_go_through_writes, a_base_is_never_a_view, what_is_a_view,
    a_view_made_under_no_grad_is_a_view, memory_is_shared_with_a_reshaped_constant,
    is_leaf_after_a_write, views_and_detached_tensors_share_the_count, data_counts_its_own_writes,
    data_assigned_keeps_the_count, set_takes_memory_and_counts,
    a_view_of_memory_its_base_has_left, data_of_another_shape_and_type,
    a_write_under_no_grad_counts, out_under_no_grad, what_may_be_written_though_elements_are_one,
    retained_gradients_follow_the_value, bytes_seen_as_another_type_are_no_view,
    a_write_through_a_complex_view_of_real_memory, elements_that_are_none_seen_as_bytes,
]  # fmt: skip


@pytest.mark.parametrize("case", AGREED, ids=lambda case: case.__name__)
def test_as_in_torch(case: Callable[[Any], Any]) -> None:
    assert case(lucid_gpu) == case(torch_module())


@pytest.mark.parametrize("case", AGREED, ids=lambda case: case.__name__)
def test_as_in_torch_op_by_op(case: Callable[[Any], Any]) -> None:
    with lucid_gpu.fusion.eager():
        assert case(lucid_gpu) == case(torch_module())


def test_data_must_be_a_tensor_that_can_require_grad() -> None:
    def set_integers(m: Any) -> None:
        leaf(m).data = m.zeros(4, dtype=m.int64)

    def set_a_number(m: Any) -> None:
        leaf(m).data = 3

    same_error(set_integers, "must be floating point or complex dtype")
    same_error(set_a_number, "Variable data has to be a tensor, but got int")


def test_a_view_that_alone_holds_its_base_takes_a_new_value(device: str) -> None:
    """`linear(x).view(...).relu_()` writes no memory that anybody could see."""
    x = lucid_gpu.ones(4, device=device, requires_grad=True)
    with lucid_gpu.fusion.eager(False):
        view = (x * 2).view(2, 2)
        view.mul_(3)
        assert not view._expr.program.is_load  # pending: the write fuses with what follows
    view.sum().backward()
    assert x.grad.tolist() == [6.0] * 4


def test_views_hold_their_base_and_nothing_else_does(device: str) -> None:
    x = lucid_gpu.ones(4, device=device, requires_grad=True)
    b = x * 1
    view, other = b[:2], b[1:]
    view.mul_(2)
    (other.sum() + b.sum()).backward()
    known = weakref.ref(b)
    node = weakref.ref(b.grad_fn)
    del b, view
    gc.collect()
    assert known() is other._base
    del other
    gc.collect()
    assert known() is None
    assert node() is None


def test_a_long_chain_of_views_is_made_and_found_anew_without_recursion(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    b = x * 1
    view = b
    for _ in range(20_000):
        view = view.view(2)
    b.mul_(2)
    view.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    del b, view
    gc.collect()


# --- where we depart from PyTorch, on purpose ----------------------------------------------------


def test_a_realized_value_written_in_place_raises(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x.exp()
    y.tolist()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_write_through_data_leaves_gradients_right(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    w = lucid_gpu.tensor([3.0, 4.0], device=device, requires_grad=True)
    y = x * w
    w.data.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert w._version == 0


OVERLAPS: dict[str, Callable[[Any], tuple[Any, Any]]] = {  # what is written, what is read
    "ahead": lambda x: (x[1:], x[:-1]),
    "behind": lambda x: (x[:-1], x[1:]),
    "wider": lambda x: (x[::2], x[:6]),
    "narrower": lambda x: (x[:6], x[1::2]),
    "transposed": lambda x: (x[:9].view(3, 3), x[:9].view(3, 3).t()),
    "of rows": lambda x: (x.view(3, 4)[:, :3], x.view(3, 4)[:, 1:]),
    "expanded": lambda x: (x[:9].view(3, 3), x[1:4].expand(3, 3)),
    "itself": lambda x: (x, x),
}
OVERLAPPING: dict[str, Callable[[Any, Any], Any]] = {
    "copy_": lambda a, b: a.copy_(b),
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, b: a.mul_(b),
    "lerp_": lambda a, b: a.lerp_(b, 0.25),
    "where": lambda a, b: a.copy_(lucid_gpu.where(b > 4, b, a)),
    "out=": lambda a, b: lucid_gpu.mul(b, b, out=a),
    "cumsum": lambda a, b: lucid_gpu.cumsum(b, 0, out=a),
    "a slice": lambda a, b: a.__setitem__(slice(None), b),
    "numbers": lambda a, b: a.__setitem__(lucid_gpu.arange(len(a), device=a.device), b),
    "masked_fill_": lambda a, b: a.masked_fill_(b > 4, 0.5),
    "index_add_": lambda a, b: a.index_add_(0, lucid_gpu.arange(len(a), device=a.device), b),
    "foreach": lambda a, b: lucid_gpu._foreach_add_([a], [b]),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_what_is_read_may_overlap_what_is_written(name: str, device: str) -> None:
    write = OVERLAPPING[name]
    for overlap, parts in OVERLAPS.items():
        x, apart = (lucid_gpu.arange(12.0, device=device) for _ in range(2))
        write(*parts(x))
        written, read = parts(apart)
        write(written, read.clone())
        assert x.tolist() == apart.tolist(), overlap


def test_a_large_matrix_becomes_its_own_transpose() -> None:
    x = lucid_gpu.arange(256.0 * 256).view(256, 256)  # NumPy's rows are read in strips
    right = x.t().clone()
    x.copy_(x.t())
    assert (x == right).all()


# How a view whose elements lie one on the other is written, and by what the gradient is right then.
_ON_ITSELF = {
    "mul_": (lambda v, x: v.mul_(3), 3.0),
    "masked_fill_": (lambda v, x: v.masked_fill_(v == 4, 7.0), 0.0),
    "copy_": (lambda v, x: v.copy_(x[1] * 5), 5.0),
}


@pytest.mark.parametrize("name", _ON_ITSELF)
@pytest.mark.parametrize("outside", [False, True], ids=["of the view", "of the base"])
def test_what_was_written_twice_into_one_element_has_its_gradient_once(
    name: str, outside: bool, device: str
) -> None:
    x = lucid_gpu.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True, device=device)
    base = x * 2
    view = base.as_strided((2, 2), (1, 1))
    write, slope = _ON_ITSELF[name]
    write(view, x)
    result = base[1] if outside else view[0, 1] + view[1, 0]
    (gradient,) = lucid_gpu.autograd.grad(result, x)
    factor = slope * (1 if name == "copy_" else 2) * (1 if outside else 2)
    assert gradient.tolist() == [0.0, factor, 0.0, 0.0]


@pytest.mark.parametrize("turn", ["unsqueeze_", "transpose_"])
@pytest.mark.parametrize("to_complex", [True, False], ids=["complex", "real"])
def test_a_view_of_the_other_kind_that_is_turned_under_no_grad_keeps_its_history(
    to_complex: bool, turn: str, device: str
) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.tensor([1.0, 2.0, 3.0, 4.0], device=d, requires_grad=True)
        y = x.view(2, 2) * 1
        view = m.view_as_complex(y)[1:] if to_complex else m.complex(y, y * 2)[1:].imag
        with m.no_grad():
            getattr(view, turn)(*[0] * (1 + (turn == "transpose_")))
        (m.view_as_real(view) if to_complex else view).square().sum().backward()
        return x.grad

    gives([0.0, 0.0, 6.0, 8.0] if to_complex else [0.0, 0.0, 24.0, 32.0], scenario, device)
