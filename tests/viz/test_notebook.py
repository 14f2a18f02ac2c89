"""What notebooks show: well-formed, escaped, and no more of a tensor than is seen."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.ops.printing import printoptions


def parsed(shown):
    """Some HTML, which has to be well-formed."""
    return ElementTree.fromstring(shown._repr_html_().replace("<details open>", "<details>"))


def texts(shown):
    """The texts of some HTML, which has to be without scripts."""
    root = parsed(shown)
    assert not {e.tag for e in root.iter()} & {"script", "style", "link", "img"}
    return list(root.itertext())


def table(shown):
    """The cells of its tables."""
    return [["".join(cell.itertext()) for cell in row] for row in parsed(shown).iter("tr")]


def test_a_small_matrix(device):
    x = lucid_gpu.tensor([[1.0, 2.5], [-3.0, 0.01]], device=device, requires_grad=True)
    assert table(x) == [["", "0", "1"], ["0", "1.0000", "2.5000"], ["1", "-3.0000", "0.0100"]]
    assert texts(x)[:3] == ["Tensor", " ", f"2×2 · float32 · {x.device} · requires_grad=True"]
    assert "grad_fn=<MulBackward0>" in texts(x * 2)[2]
    assert x.grad is None and x.is_leaf


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (lambda: lucid_gpu.tensor(3), [["3"]]),
        (lambda: lucid_gpu.tensor([True, False]), [["0", "1"], ["True", "False"]]),
        (lambda: lucid_gpu.tensor([1.5]).to(lucid_gpu.bfloat16), [["0"], ["1.5000"]]),
        (lambda: lucid_gpu.tensor([1 + 2j]), [["0"], ["1.+2.j"]]),
        (lambda: lucid_gpu.zeros(0, 3), []),
    ],
)
def test_other_types(value, rows):
    assert table(value()) == rows


def test_large_tensors_are_cut_before_they_are_copied(device, monkeypatch):
    copied = []
    cpu = lucid_gpu.Tensor.cpu
    monkeypatch.setattr(lucid_gpu.Tensor, "cpu", lambda t: copied.append(t.numel()) or cpu(t))
    matrix = lucid_gpu.arange(4000, device=device).view(40, 100)
    rows = table(matrix)
    assert rows[0] == ["", "0", "1", "2", "…", "97", "98", "99"]
    assert rows[3] == ["2", "200", "201", "202", "…", "297", "298", "299"]
    assert set(rows[4]) == {"…"} and rows[7][-1] == "3999" and len(rows) == 8
    assert table(matrix.view(-1))[1] == ["0", "1", "2", "…", "3997", "3998", "3999"]
    assert table(matrix.view(2000, 2))[4:6] == [["…"] * 3, ["1997", "3994", "3995"]]
    assert table(matrix.view(2, 4, 10, 50))[1][:3] == ["0", "0", "1"]
    assert any("of which [0, 0] is shown" in t for t in texts(matrix.view(2, 4, 10, 50)))
    assert max(copied) == 500  # the first matrix of the last
    with printoptions(edgeitems=1):
        assert table(matrix)[1:] == [["0", "0", "…", "99"], ["…"] * 4, ["39", "3900", "…", "3999"]]


def test_what_has_no_table_is_shown_as_text():
    sparse = lucid_gpu.sparse_coo_tensor([[0], [1]], [1.0], (2, 2))
    assert sparse._repr_html_() is None
    assert nn.LazyLinear(3).weight._repr_html_() is None
    inside = []
    lucid_gpu.func.vmap(lambda x: inside.append(x._repr_html_()) or x)(lucid_gpu.zeros(2, 2))
    assert inside == [None]


class Odd(nn.Module):
    def extra_repr(self):
        return "<b> & 'c'"


def test_a_module_is_a_tree(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.ModuleDict({"x<y": Odd()})).to(device)
    model[0].bias.requires_grad_(False)
    model.register_buffer("seen", lucid_gpu.zeros((), device=device))
    model.twin = model[0]
    found = texts(model)
    assert "16 parameters, 4 of them frozen" in found and "(in_features=3, out_features=4" in str(
        found
    )
    at = found.index("weight")
    where = str(model[0].weight.device)
    assert found[at : at + 3] == ["weight", "4×3", f"float32 · {where}"]
    assert found[at + 3 : at + 6] == ["bias", "4", f"float32 · {where} · frozen"]
    assert ["seen", "scalar", f"float32 · {where} · buffer"] in table(model)
    assert "x<y:" in found and "(<b> & 'c')" in found
    lazy = texts(nn.Sequential(nn.LazyLinear(3), nn.Linear(2, 1)))
    assert "3 parameters, some known after the first call" in lazy and "?" in lazy


def test_an_optimizer_is_its_groups():
    layer = nn.Linear(3, 4)
    groups = [{"params": [layer.weight]}, {"params": [layer.bias], "lr": 0.5}]
    rows = table(lucid_gpu.optim.SGD(groups, lr=0.1, momentum=0.9))
    assert rows[0][:3] == ["", "lr", "momentum"]
    assert [row[:3] for row in rows[1:]] == [
        ["1 tensors, 12 numbers", "0.1", "0.9"],
        ["1 tensors, 4 numbers", "0.5", "0.9"],
    ]
