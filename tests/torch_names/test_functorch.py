"""`functorch` under its own name: the transforms, and modules as functions."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
from lucid_gpu.functorch import experimental

import lucid_gpu
from lucid_gpu import functorch, nn

pytestmark = pytest.mark.filterwarnings("ignore:We've integrated functorch:FutureWarning")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", lucid_gpu.full((), 2.0))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).tanh()) * self.scale


def test_a_module_becomes_a_function_of_its_state() -> None:
    model, x = Tied(), lucid_gpu.randn(2, 3)
    function, parameters, buffers = functorch.make_functional_with_buffers(model)
    assert len(parameters) == 3 and len(buffers) == 1
    assert function(parameters, buffers, x).tolist() == model(x).tolist()
    slopes = functorch.grad(lambda p: function(p, buffers, x).sum())(parameters)
    model(x).sum().backward()
    for slope, parameter in zip(slopes, model.parameters(), strict=True):
        assert (slope - parameter.grad).abs().max().item() < 1e-5
    doubled = function(parameters, [buffers[0] * 2], x)
    assert doubled.tolist() == (model(x) * 2).tolist()
    with pytest.raises(RuntimeError, match="`model` has buffers"):
        functorch.make_functional(model)


def test_the_function_has_a_copy_of_the_module() -> None:
    model = nn.Linear(2, 1)
    function, parameters = functorch.make_functional(model, disable_autograd_tracking=True)
    before = function(parameters, lucid_gpu.ones(2)).item()
    assert not any(p.requires_grad for p in parameters) and model.weight.requires_grad
    with lucid_gpu.no_grad():
        model.weight.add_(1)
    assert function(parameters, lucid_gpu.ones(2)).item() == before


def test_an_ensemble_runs_by_vmap() -> None:
    models, x = [Tied() for _ in range(4)], lucid_gpu.randn(5, 3)
    function, parameters, buffers = functorch.combine_state_for_ensemble(models)
    assert all(p.is_leaf and p.requires_grad and p.shape[0] == 4 for p in parameters)
    results = functorch.vmap(function, in_dims=(0, 0, None))(parameters, buffers, x)
    expected = lucid_gpu.stack([model(x) for model in models])
    assert (results - expected).abs().max().item() < 1e-6
    for some, words in (
        ([], "at least one model"),
        ([models[0], Tied().eval()], "same training/eval mode"),
        ([models[0], nn.Linear(3, 3)], "same class"),
    ):
        with pytest.raises(RuntimeError, match=words):
            functorch.combine_state_for_ensemble(some)


def test_batch_norms_keep_no_statistics_under_vmap() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3)))
    assert experimental.replace_all_batch_norm_modules_(net) is net
    assert net[1][0].running_mean is None and not list(net.buffers())
    x = lucid_gpu.randn(2, 4, 3)
    assert lucid_gpu.func.vmap(net)(x).shape == (2, 4, 3)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_functionalize_keeps_results_and_writes(remove: str) -> None:
    def f(x: Any) -> Any:
        x.view(4)[::2].add_(1)
        return x * 2

    x = lucid_gpu.zeros(2, 2)
    assert lucid_gpu.func.functionalize(f, remove=remove)(x).tolist() == [[2, 0], [2, 0]]
    assert x.tolist() == [[1, 0], [1, 0]]
    with pytest.raises(RuntimeError, match="received invalid argument for remove"):
        lucid_gpu.func.functionalize(f, remove="views")


def test_each_name_warns_and_is_imported_in_place_of_pytorchs() -> None:
    with pytest.warns(FutureWarning, match=r"Please use `torch\.func\.grad` instead"):
        functorch.grad(lucid_gpu.sin)
    with pytest.warns(FutureWarning, match=r"Please use `torch\.vmap` instead"):
        functorch.vmap(lucid_gpu.sin)
    program = (
        "import lucid_gpu; lucid_gpu.install_as_torch()\n"
        "from functorch import make_functional, vmap\n"
        "from functorch.experimental import chunk_vmap\n"
        "import functorch; assert functorch is lucid_gpu.functorch\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("chunks", [1, 2, 3, 9])
def test_chunk_vmap(chunks: int) -> None:
    seen = []

    def double(x: Any, y: Any) -> Any:
        seen.append(x)
        return x * y

    x = lucid_gpu.arange(10.0).reshape(2, 5)
    result = experimental.chunk_vmap(double, (1, None), -1, chunks=chunks)(x, lucid_gpu.tensor(2.0))
    assert result.tolist() == (x * 2).tolist()
    assert len(seen) == {1: 1, 2: 2, 3: 3, 9: 5}[chunks]


class Pair:
    """A container with a batch of its own, as tensordict's are."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def size(self, dim: int) -> int:
        return int(self.parts[0].size(dim))


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("out_dim", [0, -1])
def test_vmap_runs_the_functions_that_a_package_puts_in_place(
    monkeypatch: pytest.MonkeyPatch, out_dim: int, chunk_size: int | None
) -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    found = []
    for m in (lucid_gpu, torch):
        inner: Any = importlib.import_module(f"{m.__name__}._functorch.vmap")
        raw: Any = importlib.import_module(f"{m.__name__}._C._functorch")

        def opened(dims: Any, args: Any, func: Any, inner: Any = inner) -> Any:
            leaves, spec = inner.tree_flatten(args)
            return 5, inner._broadcast_to_and_flatten(dims, spec), leaves, spec

        def batched(
            dims: Any, leaves: Any, level: int, spec: Any, inner: Any = inner, raw: Any = raw
        ) -> Any:
            add = inner._add_batch_dim
            made = [
                a
                if d is None
                else Pair(*[add(p, d, level) for p in a.parts])
                if isinstance(a, Pair)
                else add(a, d, level)
                for d, a in zip(dims, leaves, strict=True)
            ]
            part = next(a for a in made if isinstance(a, Pair)).parts[0]
            assert raw.is_batchedtensor(part) and raw.get_unwrapped(part).ndim == part.ndim + 1
            return inner.tree_unflatten(made, spec)

        Pair.split = lambda self, n, dim: [  # type: ignore[attr-defined]
            Pair(*both) for both in zip(*[p.split(n, dim) for p in self.parts])
        ]
        Pair.tensor_split = lambda self, at, dim: [  # type: ignore[attr-defined]
            Pair(*both) for both in zip(*[p.tensor_split(at, dim=dim) for p in self.parts])
        ]
        monkeypatch.setattr(inner, "_process_batched_inputs", opened)
        monkeypatch.setattr(inner, "_create_batched_inputs", batched)
        pair = Pair(m.arange(10.0).reshape(5, 2), m.arange(15.0).reshape(5, 3))
        w = m.arange(6.0).reshape(2, 3)
        mapped = m.vmap(
            lambda p, w: (p.parts[0] @ w * p.parts[1]).tanh(),
            (0, None),
            out_dim,
            chunk_size=chunk_size,
        )
        found.append(mapped(pair, w).tolist())
        monkeypatch.undo()
        assert m.vmap(lambda x: x * 2)(m.ones(2)).tolist() == [2, 2]
    for ours, theirs in zip(*found, strict=True):
        assert ours == pytest.approx(theirs)
