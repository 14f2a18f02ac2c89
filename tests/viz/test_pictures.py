"""Pictures of graphs and profiles: well-formed, and they say what is there."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import lucid_gpu
from lucid_gpu import nn, viz
from lucid_gpu.profiler import profile, record_function


def words(picture):
    """The texts of a picture, which has to be well-formed."""
    root = ElementTree.fromstring(picture.svg)
    assert root.tag.endswith("svg")
    return [e.text for e in root.iter() if e.tag.endswith("}text")]


class Double(lucid_gpu.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_graph_shows_regions_ops_and_leaves(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to(device)
    x = lucid_gpu.ones(5, 3, device=device, requires_grad=True)
    loss = Double.apply(model(x)).exp().sum()
    found = words(viz.graph(loss, model, title="<a & b>"))
    for word in ("0.weight", "0.bias", "leaf", "4×3", "5×3", "Linear", "tanh", "exp", "result"):
        assert word in found, word
    assert {"Double", "one fused kernel", "autograd.Function", "<a & b>", "scalar"} <= set(found)


def test_what_is_fused_is_one_box():
    x = lucid_gpu.ones(3, requires_grad=True)
    y = (x.sin() * 2 + 1).sqrt()
    found = words(viz.graph(y, {"<x>": x}))
    assert "4 ops, 1 kernel" in found and "<x>" in found
    assert [w for w in found if w in ("sin", "mul", "add", "sqrt")] == ["sin", "mul", "add", "sqrt"]
    assert len(lucid_gpu.explain(y).kernels) == 1


def test_several_results_and_used_graphs():
    x = lucid_gpu.ones(3, requires_grad=True)
    a, b = x @ x, x * 2
    assert {"result 0", "result 1"} <= set(words(viz.graph([a, b])))
    a.backward()
    assert "Dot" in words(viz.graph(a, legend=False))
    assert "result" in words(viz.graph(x))


def test_deep_graphs_do_not_recurse():
    x = (lucid_gpu.ones(2, 2) / 2).requires_grad_()
    y = x
    for _ in range(1200):
        y = y @ x
    found = words(viz.graph(y, {"x": x}, legend=False))
    assert found.count("Mm") == 1200 and found.count("x") == 1199  # a box for each use but three


def test_wrong_arguments():
    with pytest.raises(TypeError, match="draws tensors, not int"):
        viz.graph([3])
    with pytest.raises(ValueError, match="this one has no graph"):
        viz.graph(lucid_gpu.ones(2))
    with pytest.raises(TypeError, match="params is a dict"):
        viz.graph(lucid_gpu.ones(2, requires_grad=True), [1])
    with pytest.raises(TypeError, match="draws a profiler.profile"):
        viz.timeline(3)
    with pytest.raises(ValueError, match="nothing ran in this profile"):
        viz.timeline(profile())


def test_a_time_line_shows_ranges_and_kernels(device, tmp_path):
    x = lucid_gpu.ones(1000, device=device)
    (x.exp() + 1).cpu().numpy()
    with profile() as prof:
        with record_function("a <step>"):
            (x.exp() + 1).cpu().numpy()
    picture = viz.timeline(prof, title="title")
    found = words(picture)
    assert "title" in found and "lucid_exp_add" in found
    assert any("a <step>" in (e.text or "") for e in ElementTree.fromstring(picture.svg).iter())
    assert ("CPU" if device == "cpu" else "cuda:0") in found
    assert any("1×" in word for word in found)
    picture.save(tmp_path / "line.svg")
    assert (tmp_path / "line.svg").read_text("utf-8") == picture.svg == picture._repr_svg_()
    assert "bytes of SVG" in repr(picture)


def test_many_kernels_and_threads():
    import threading

    x = lucid_gpu.ones(10)
    names = (
        "sin",
        "cos",
        "tan",
        "exp",
        "sqrt",
        "tanh",
        "log",
        "neg",
        "abs",
        "erf",
        "floor",
        "ceil",
    )

    def work():
        for name in names:
            getattr(x, name)().numpy()

    with profile() as prof:
        work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    found = words(viz.timeline(prof))
    assert {"thread 1", "thread 2"} <= set(found)
    assert any("2 others" in word for word in found)
