"""Embedding and EmbeddingBag: every argument, PyTorch's values, gradients, repr and sentences."""

import numpy as np
import pytest

import lucid_gpu
from tests.nn.layers import pair, run_of
from tests.oracle import agree, modules, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
NUMBERS = np.array([1, 4, 1, 2, 0, 1])
OFFSETS = np.array([0, 2, 2, 5])
BAGS = NUMBERS.reshape(2, 3)

LAYERS = {  # how it is made, what it is called with
    "frequencies": (lambda m: m.nn.Embedding(5, 3, scale_grad_by_freq=True), (BAGS,)),
    "padding": (lambda m: m.nn.Embedding(5, 3, -4, scale_grad_by_freq=True), (BAGS,)),
    "mean of rows": (lambda m: m.nn.EmbeddingBag(5, 3), (BAGS,)),
    "mean": (lambda m: m.nn.EmbeddingBag(5, 3, padding_idx=1), (NUMBERS, OFFSETS)),
    "sum": (lambda m: m.nn.EmbeddingBag(5, 3, mode="sum"), (NUMBERS, OFFSETS)),
    "sum, last offset": (
        lambda m: m.nn.EmbeddingBag(5, 3, mode="sum", include_last_offset=True),
        (NUMBERS, np.array([0, 2, 2, 6])),
    ),
    **{
        f"{mode}, last offset before the end": (
            lambda m, mode=mode: m.nn.EmbeddingBag(5, 3, mode=mode, include_last_offset=True),
            (NUMBERS, np.array([0, 2, 2, 3])),
        )
        for mode in ("sum", "mean", "max")
    },
    "sum of rows, last offset": (
        lambda m: m.nn.EmbeddingBag(5, 3, mode="sum", include_last_offset=True),
        (BAGS,),
    ),
    "weighted": (
        lambda m: m.nn.EmbeddingBag(5, 3, mode="sum", padding_idx=4),
        (NUMBERS, OFFSETS, normal(6)),
    ),
    "weighted rows": (lambda m: m.nn.EmbeddingBag(5, 3, mode="sum"), (BAGS, None, normal((2, 3)))),
    "max": (lambda m: m.nn.EmbeddingBag(5, 3, mode="max"), (NUMBERS, OFFSETS)),
    "max, padding": (lambda m: m.nn.EmbeddingBag(5, 3, mode="max", padding_idx=1), (BAGS,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, given = LAYERS[name]
    theirs, ours = pair(make, device)
    agree(run_of(theirs, ours, lambda layer, m, *given: layer(*given)), *given, device=device)


@pytest.mark.parametrize("name", LAYERS)
def test_repr_is_torchs(name):
    make, _ = LAYERS[name]
    assert repr(make(lucid_gpu)) == repr(make(torch_module()))


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("kind_of_number", ["int64", "int32"])
def test_long_rows_are_shortened_in_place(norm_type, bag, kind_of_number, device):
    weight = normal((5, 3))
    tables = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        kind = m.nn.EmbeddingBag if bag else m.nn.Embedding
        table = m.tensor(weight).to(where)
        layer = kind.from_pretrained(table, freeze=False, max_norm=0.5, norm_type=norm_type)
        out = layer(m.tensor(BAGS, dtype=getattr(m, kind_of_number)).to(where))
        assert repr(layer).endswith("mean')" if bag else "norm=0.5)") or norm_type != 2
        tables.append([t.detach().cpu().numpy() for t in (layer.weight, out)])
    for mine, other in zip(*tables, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


@pytest.mark.parametrize("max_norm", [None, 0.5, 1.5, 100.0])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0])
def test_shortening_leaves_tangents_as_they_are(max_norm, norm_type):
    """As gradients, tangents do not see the write, of the rows nor of the table."""
    weight, moved = normal((5, 3)), normal((5, 3))

    def along(m):
        def looked_up(w):
            rows = m.nn.functional.embedding(
                m.tensor(BAGS), w, max_norm=max_norm, norm_type=norm_type
            )
            return rows, w * w

        return m.func.jvp(looked_up, (m.tensor(weight),), (m.tensor(moved),))

    ours, theirs = along(lucid_gpu), along(torch_module())
    for mine, other in zip(ours[0] + ours[1], theirs[0] + theirs[1], strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)
    forward_ad = lucid_gpu.autograd.forward_ad
    with forward_ad.dual_level():  # PyTorch has no forward mode for bags
        dual = forward_ad.make_dual(lucid_gpu.tensor(weight), lucid_gpu.tensor(moved))
        bags = lucid_gpu.nn.functional.embedding_bag(
            lucid_gpu.tensor(BAGS), dual, max_norm=max_norm, norm_type=norm_type, mode="sum"
        )
        tangent = forward_ad.unpack_dual(bags).tangent.numpy()
    np.testing.assert_allclose(tangent, moved[BAGS].sum(1), rtol=1e-6)


def test_pretrained_bags():
    table = lucid_gpu.ones(3, 2)
    made = lucid_gpu.nn.EmbeddingBag.from_pretrained(table, mode="sum")
    assert made(lucid_gpu.tensor([[0, 1, 2]])).tolist() == [[3, 3]]
    assert not made.weight.requires_grad
    assert lucid_gpu.nn.Embedding(3, 2, _weight=table, _freeze=True).weight.requires_grad is False


def test_frequencies_of_bags(device):
    """PyTorch 2.13 divides by counts of other rows on the CPU."""
    weight = lucid_gpu.zeros(5, 1, device=device, requires_grad=True)
    numbers, offsets = (lucid_gpu.tensor(a).to(device) for a in (NUMBERS, OFFSETS))
    bags = lucid_gpu.nn.functional.embedding_bag(
        numbers, weight, offsets, mode="sum", scale_grad_by_freq=True
    )
    (slope,) = lucid_gpu.autograd.grad(bags.sum(), weight)
    np.testing.assert_allclose(slope.cpu().numpy()[:, 0], [1, 1, 1, 0, 1], rtol=1e-6)


def test_no_bag_and_no_number(device):
    def run(m, weight):
        empty = m.zeros(0, dtype=m.int64).to(weight.device)
        bags = m.zeros(2, dtype=m.int64).to(weight.device)
        return [m.nn.functional.embedding_bag(empty, weight, bags, mode=k) for k in ("sum", "max")]

    agree(run, normal((5, 3)), device=device, order=1)


ROWS, Z = [0, 4, 2], [0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, b: b()(m.tensor(ROWS)), "offsets has to be a 1D Tensor but got None"),
        (
            lambda m, b: b()(m.tensor(ROWS), m.tensor([1, 2])),
            "offsets[0] has to be 0, i.e., the fir",
        ),
        (lambda m, b: b()(m.tensor(ROWS), m.tensor([0, 7])), "offsets[-1] can not be greater than"),
        (lambda m, b: b()(m.tensor(ROWS), m.tensor([0, 2, 1])), "offsets must not decrease"),
        (lambda m, b: b()(m.tensor(ROWS).float(), m.tensor(Z)), "Expected tensor for argument #1"),
        (
            lambda m, b: b(mode="x")(m.tensor(ROWS), m.tensor(Z)),
            "mode has to be one of sum, mean or",
        ),
        (
            lambda m, b: b()(m.tensor([ROWS]), m.tensor(Z)),
            "if input is 2D, then offsets has to be No",
        ),
        (
            lambda m, b: b()(m.tensor([[ROWS]])),
            "input has to be 1D or 2D Tensor, but got Tensor of",
        ),
        (
            lambda m, b: b()(m.tensor(ROWS), m.tensor(Z), m.zeros(3)),
            "only supported for mode='sum'",
        ),
        (lambda m, b: b()(m.tensor(ROWS), m.tensor(Z), m.zeros(2)), "must have the same shape as"),
        (
            lambda m, b: b(mode="max", scale_grad_by_freq=True)(m.tensor(ROWS), m.tensor(Z)),
            "max mode does not support scaling the gradient",
        ),
        (lambda m, b: b()(m.tensor(ROWS), m.tensor([0.0])), "one of the following scalar types"),
        (
            lambda m, b: b(include_last_offset=True)(m.tensor(ROWS), m.tensor(Z)[:0]),
            "include_last_offset: number of offset should be at least 1",
        ),
        (lambda m, b: m.nn.Embedding(5, 3, _weight=m.zeros(4, 3)), "Shape of weight does not mat"),
        (lambda m, b: m.nn.Embedding.from_pretrained(m.zeros(3)), "expected to be 2-dimensional"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m, lambda **k: m.nn.EmbeddingBag(5, 3, **k)), words)


SPARSE = {
    "rows": lambda m: m.nn.Embedding(5, 3, sparse=True),
    "padding": lambda m: m.nn.Embedding(5, 3, 1, sparse=True),
    "sums": lambda m: m.nn.EmbeddingBag(5, 3, mode="sum", sparse=True),
    "means": lambda m: m.nn.EmbeddingBag(5, 3, padding_idx=4, sparse=True),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients_are_torchs(name, device):
    """Twice backward: lists of rows add up; then a dense gradient makes the sum dense."""
    theirs, ours = pair(SPARSE[name], device)
    found = []
    for m, layer, where in ((torch_module(), theirs, "cpu"), (lucid_gpu, ours, device)):
        numbers = m.tensor(BAGS).to(where)
        layer(numbers).square().sum().backward()
        first = layer.weight.grad
        rows = first.coalesce()
        layer(numbers[:1]).sum().backward()
        both = layer.weight.grad.to_dense()
        layer.weight.sum().backward()
        told = [first.is_sparse, first.sparse_dim(), rows.indices().tolist(), repr(layer)]
        told.append(layer.weight.grad.is_sparse)
        grads = [rows.values(), both, layer.weight.grad]
        found.append((told, [t.detach().cpu().numpy() for t in grads]))
    (told, expected), (mine, got) = found
    assert mine == told
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_sparse_gradient_is_differentiated_again():
    numbers = np.array([1, 4, 1])

    def second(m, weight):
        rows = m.nn.functional.embedding(m.tensor(numbers), weight, sparse=True)
        (g,) = m.autograd.grad((rows**3).sum(), weight, create_graph=True)
        (h,) = m.autograd.grad((g.to_dense() ** 2).sum(), weight)
        return g.to_dense().detach(), h.to_dense()

    agree(second, normal((5, 2)), device="cpu", order=0)


STEPS = {
    "SGD": lambda m, p: m.optim.SGD(p, lr=0.1, maximize=True),
    "momentum": lambda m, p: m.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda m, p: m.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "SparseAdam": lambda m, p: m.optim.SparseAdam(p, lr=0.1, betas=(0.8, 0.9)),
    "SparseAdam, uphill": lambda m, p: m.optim.SparseAdam(p, maximize=True),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyTorch's Adagrad
@pytest.mark.parametrize("name", STEPS)
def test_steps_by_sparse_gradients_are_torchs(name, device):
    theirs, ours = pair(lambda m: m.nn.Embedding(6, 3, sparse=True), device)
    ends = []
    for m, layer, where in ((torch_module(), theirs, "cpu"), (lucid_gpu, ours, device)):
        optimizer = STEPS[name](m, layer.parameters())
        for numbers in (BAGS, BAGS[:1], BAGS[1:]):
            optimizer.zero_grad()
            layer(m.tensor(numbers).to(where)).square().sum().backward()
            optimizer.step()
        state = optimizer.state_dict()["state"].get(0, {})
        states = [
            float(v) if k == "step" else np.asarray(v.to_dense().detach().cpu())
            for k, v in state.items()
            if v is not None
        ]
        ends.append((list(state) or None, [layer.weight.detach().cpu().numpy(), *states]))
    assert name in ("SGD", "momentum") or ends[0][0] == ends[1][0]
    for a, b in zip(ends[1][1], ends[0][1], strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_lists_single_elements():
    """Not rows: the step is that of the dense gradient."""
    ends = []
    for m, _ in modules():
        p = m.ones(2, 3).requires_grad_()
        p.grad = m.eye(2, 3).to_sparse()
        m.optim.SGD([p], lr=0.5).step()
        ends.append(p.tolist())
    assert ends[0] == [[0.5, 1.0, 1.0], [1.0, 0.5, 1.0]] and ends[0] == ends[-1]


def looked_up(m, **settings):
    weight = m.ones(5, 3).requires_grad_()
    m.nn.functional.embedding(m.tensor([1, 2]), weight, sparse=True, **settings).sum().backward()
    return weight


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: looked_up(m, scale_grad_by_freq=True), "not supported with sparse gradients"),
        (lambda m: m.optim.Adam([looked_up(m)]).step(), "Adam does not support sparse gradients"),
        (lambda m: m.optim.Adagrad([looked_up(m)], weight_decay=1).step(), "weight_decay option"),
        (lambda m: m.optim.SparseAdam([m.ones(2)], lr=0), "Invalid learning rate: 0"),
        (lambda m: m.optim.SparseAdam([m.eye(2).to_sparse()]), "requires dense parameter tensors"),
        (
            lambda m: m.optim.SparseAdam([looked_up(m) + 0]).step(),
            "can't optimize a non-leaf Tensor",
        ),
    ],
)
def test_errors_of_sparse_gradients_are_torchs(call, words):
    same_error(call, words)


def test_sparse_adam_wants_sparse_gradients():
    def step(m):
        weight = m.ones(5, 3).requires_grad_()
        weight.sum().backward()
        m.optim.SparseAdam([weight]).step()

    same_error(step, "SparseAdam does not support dense gradients, please consider Adam instead")


@pytest.mark.parametrize("kind", ["int8", "int64", "uint8"])
def test_a_frozen_table_may_hold_integers(kind):
    for m, _ in modules():
        table = m.arange(6, dtype=getattr(m, kind)).reshape(2, 3)
        layer = m.nn.Embedding.from_pretrained(table)
        assert m.equal(layer(m.tensor([1, 0])), table[[1, 0]])


@pytest.mark.parametrize("padding", [-6, 5])
def test_bags_refuse_padding_that_is_no_row(padding):
    same_error(
        lambda m: m.nn.functional.embedding_bag(
            m.tensor([[1, 2]]), m.ones(5, 3), padding_idx=padding
        ),
        "padding_idx must be within the number of embeddings",
    )


def test_weights_of_bags_have_the_type_of_the_table():
    same_error(
        lambda m: m.nn.functional.embedding_bag(
            m.tensor([[1, 2]]),
            m.ones(5, 3),
            mode="sum",
            per_sample_weights=m.ones(1, 2, dtype=m.float64),
        ),
        "to have the same type as tensor",
    )


@pytest.mark.parametrize("number", [-1, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_refuse_what_is_no_row(mode, number):
    with pytest.raises(RuntimeError, match=f"num_embeddings but found idx to be {number}"):
        lucid_gpu.nn.functional.embedding_bag(
            lucid_gpu.tensor([[0, number]]), lucid_gpu.ones(3, 2), mode=mode
        )


def test_a_bag_of_a_table_given_first_is_taken_with_a_warning():
    def run(m):
        table = m.arange(8.0, dtype=m.float64).reshape(4, 2).requires_grad_()
        rows = m.tensor([[0, 1], [3, 3]])
        with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag"):
            bags = m.nn.functional.embedding_bag(table, rows, mode="sum")
        bags.sum().backward()
        return bags.tolist(), table.grad.tolist()

    assert run(lucid_gpu) == run(torch_module())
