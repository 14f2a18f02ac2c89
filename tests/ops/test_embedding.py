"""Row look-up against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal
ROWS = np.array([[1, 2, 1], [0, 4, 1]])


@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("rows", [ROWS, ROWS.T, ROWS.astype(np.int32), np.array(3)])
def test_agrees_with_torch(padding, rows, device):
    def looked_up(m, weight, index):
        return m.nn.functional.embedding(index, weight, padding_idx=padding) * weight[0]

    agree(looked_up, normal((5, 3)), rows, device=device)


def test_no_rows():
    weight = lucid_gpu.ones(5, 2, requires_grad=True)
    rows = F.embedding(lucid_gpu.zeros(0, 3, dtype=lucid_gpu.int64), weight)
    assert tuple(rows.shape) == (0, 3, 2)
    rows.sum().backward()
    assert not weight.grad.any().item()


@pytest.mark.parametrize("padding", [None, 1])
def test_first_and_second_gradients(padding):
    weight = lucid_gpu.tensor(normal((5, 2)), requires_grad=True)
    index = lucid_gpu.tensor(ROWS)

    def looked_up(weight):
        return F.embedding(index, weight, padding)

    if padding is None:  # with padding the gradient is, on purpose, not that of the function
        assert gradcheck(looked_up, (weight,))
    assert gradgradcheck(looked_up, (weight,))


def test_narrow_sums_are_accumulated_in_float32():
    weight = lucid_gpu.zeros(2, 1, dtype=lucid_gpu.bfloat16, requires_grad=True)
    F.embedding(lucid_gpu.ones(1000, dtype=lucid_gpu.int64), weight).sum().backward()
    assert weight.grad.float().tolist() == [[0], [1000]]


@pytest.mark.parametrize("row", [5, -1])
def test_an_unknown_row_is_torchs_error(row):
    same_error(
        lambda m: m.nn.functional.embedding(m.tensor([0, row]), m.zeros(5, 2)),
        "index out of range in self",
        str(row),
        "5 rows",
    )


WHAT_IS_NO_TENSOR = {
    "embedding(): argument 'indices' (position 2) must be Tensor, not list": (
        lambda m: m.nn.functional.embedding([0, 1], m.zeros(5, 2))
    ),
    "dropout(): argument 'input' (position 1) must be Tensor, not float": (
        lambda m: m.nn.functional.dropout(1.0)
    ),
    "index_add(): argument 'index' (position 2) must be Tensor, not list": (
        lambda m: m.zeros(3).index_add(0, [1, 2], m.ones(2))
    ),
    "(position 3) must be Tensor, not float": (
        lambda m: m.zeros(3).index_add_(0, m.tensor([1, 2]), 1.0)
    ),
    "scatter_add(): argument 'index' (position 2) must be Tensor, not list": (
        lambda m: m.zeros(3).scatter_add(0, [1, 2], m.ones(2))
    ),
}


@pytest.mark.parametrize("words", WHAT_IS_NO_TENSOR)
def test_what_is_no_tensor_is_torchs_error(words):
    same_error(WHAT_IS_NO_TENSOR[words], words)


@pytest.mark.parametrize(
    ("numbers", "classes", "words"),
    [
        ([0, 4], 4, "Class values must be smaller than num_classes."),
        ([0, -1], 4, "Class values must be non-negative."),
        ([0.0], 4, "only applicable to index tensor of type LongTensor"),
    ],
)
def test_one_hot_of_no_class_is_torchs_error(numbers, classes, words):
    same_error(lambda m: m.nn.functional.one_hot(m.tensor(numbers), classes), words)


def test_float_indices_are_torchs_error():
    same_error(
        lambda m: m.nn.functional.embedding(m.zeros(2), m.zeros(5, 2)), "scalar types: Long, Int"
    )


@pytest.mark.parametrize("source", ["itself", "its data"])
def test_rows_of_a_tensor_added_to_itself_are_the_old_ones(source, monkeypatch):
    """Threads write rows that others still have to read."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    old = np.arange(300.0).reshape(100, 3)
    wanted = old.copy()
    wanted[(np.arange(100) + 99) % 100] += old
    x = lucid_gpu.from_numpy(old) * 1
    index = lucid_gpu.tensor((np.arange(100) + 99) % 100)
    x.index_add_(0, index, x if source == "itself" else x.data)
    assert x.tolist() == wanted.tolist()
