"""Names of PyTorch's private files that packages import."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import torch_module


def module(name: str) -> Any:
    return importlib.import_module(f"lucid_gpu.{name}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("t", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_line_search_of_lbfgs_as_packages_call_it(seed: int, t: float, dtype: str) -> None:
    def search(torch: Any) -> list[float]:
        lbfgs = importlib.import_module(f"{torch.__name__}.optim.lbfgs")
        start = torch.tensor([1.3, -0.7, 0.5 * seed, 1.9], dtype=getattr(torch, dtype))
        buffer = torch.zeros_like(start)  # one for all gradients, as packages write

        def value_and_gradient(x: Any, t: Any, d: Any) -> Any:
            y = x + t * d
            buffer.copy_(2 * y + 4 * y**3)
            return float((y**2 + y**4).sum()), buffer

        f, g = value_and_gradient(start, 0.0, start)
        g = g.clone()
        d = -g / (1 + seed)
        settings = {"c2": 0.5} if seed % 2 else {"max_ls": 3}
        found = lbfgs._strong_wolfe(
            value_and_gradient, start, t, d, f, g, g.dot(d), tolerance_change=1e-8, **settings
        )
        between = lbfgs._cubic_interpolate(
            0.0, f, g.dot(d), t, found[0], found[1].dot(d), *([(0.1, 0.4)] if seed > 1 else [])
        )
        return [float(found[0]), *found[1].tolist(), float(found[2]), found[3], float(between)]

    assert search(lucid_gpu) == pytest.approx(search(torch_module()), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("shapes", [[(2,)], [(), (2, 3)], [(1,), (0,), (2,)]])
def test_what_packages_take_from_autograd_functional(shapes: list[tuple[int, ...]]) -> None:
    def taken(torch: Any) -> list[Any]:
        functional = importlib.import_module(f"{torch.__name__}.autograd.functional")
        tensors = tuple([torch.ones(s, requires_grad=True) for s in shapes])
        many, same = functional._as_tuple(tensors, "inputs", "f")
        one, alone = functional._as_tuple(tensors[0], "inputs", "f")
        units = functional._construct_standard_basis_for(tensors, [t.numel() for t in tensors])
        tree = functional._grad_postprocess((tensors, tensors), create_graph=False)
        kept = functional._grad_postprocess(tensors, create_graph=True)
        return [
            many, len(same), one, len(alone), [u.tolist() for u in units],
            [[t.requires_grad for t in row] for row in tree], [t.requires_grad for t in kept],
            len(functional._tuple_postprocess(tensors, True)),
            functional._tuple_postprocess(tensors, False).shape,
            [t.shape for t in functional._tuple_postprocess(tree, (True, False))],
            functional._tuple_postprocess(tree, (False, False)).shape,
        ]  # fmt: skip

    assert taken(lucid_gpu) == taken(torch_module())


def test_devices_of_blocks_and_functions() -> None:
    def where(torch: Any) -> list[Any]:
        devices = importlib.import_module(f"{torch.__name__}.utils._device")
        seen: list[Any] = [devices.CURRENT_DEVICE]
        with devices.DeviceContext("meta"):
            seen += [torch.ones(1).device.type, str(devices.CURRENT_DEVICE)]
            with torch.device("cpu"):
                seen.append(torch.ones(1).device.type)
            seen.append(torch.ones(1).device.type)
        seen.append(torch.ones(1).device.type)
        made = devices.set_device("meta")(torch.zeros)(2)
        return [*seen, made.device.type, made.shape, devices.CURRENT_DEVICE]

    assert where(lucid_gpu) == where(torch_module())


@pytest.mark.parametrize("older", ["quantization", "ao.quantization"])
def test_layers_that_could_be_quantized_are_made(older: str) -> None:
    observers, configs = module(f"{older}.observer"), module(f"{older}.qconfig")
    made_by = observers.MinMaxObserver.with_args(dtype=lucid_gpu.qint8)
    config = configs.QConfig(activation=made_by, weight=made_by)
    assert module(older).QuantStub(config).qconfig.weight is made_by
    assert not isinstance(nn.BatchNorm2d(1), module("nn.quantized").BatchNorm2d)
    with pytest.raises(RuntimeError, match="MinMaxObserver: there is no quantization"):
        made_by()


def test_boxed_functions_take_one_list() -> None:
    compile = module("functorch.compile")
    add = compile.make_boxed_func(lambda a, b: a + b)
    assert add([1, 2]) == 3 and add._boxed_call
    assert compile.make_boxed_compiler(lambda graph, inputs: graph)(max, [])([1, 5]) == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda: module("functorch.compile").aot_function(abs, None),
        lambda: module("functorch.compile").aot_module(nn.Linear(1, 1), None),
        lambda: module("functorch.compile").memory_efficient_fusion(abs),
        lambda: module("functorch.compile").default_partition(None),
        lambda: module("functorch.compile").min_cut_rematerialization_partition(None),
        lambda: module("_decomp").core_aten_decompositions(),
        lambda: module("_decomp").get_decompositions([]),
        lambda: module("_dynamo.backends.common").aot_autograd(fw_compiler=None),
    ],
)
def test_what_would_need_a_compiler_refuses(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="gradients are not traced into graphs"):
        call()


def test_inputs_of_graphs_that_are_cotangents() -> None:
    partitioners = module("_functorch.partitioners")
    graph = lucid_gpu.fx.Graph()
    nodes = [graph.placeholder("primals_1"), graph.placeholder("tangents_1")]
    nodes.append(graph.call_function(abs, (nodes[0],)))
    assert [partitioners._is_primal(n) for n in nodes] == [True, False, False]
    assert [partitioners._is_tangent(n) for n in nodes] == [False, True, False]


def test_types_for_annotations() -> None:
    assert not isinstance(abs, lucid_gpu._C.ScriptMethod)
    normalize = lucid_gpu.serialization.normalize_storage_type
    assert normalize(lucid_gpu.FloatStorage) is lucid_gpu.FloatStorage
    assert lucid_gpu._subclasses.FakeTensorMode and lucid_gpu._decomp


def test_tolerances_as_packages_ask_for_them() -> None:
    comparison = module("testing._comparison")
    assert comparison.assert_close is lucid_gpu.testing.assert_close
    half, wide = lucid_gpu.float16, lucid_gpu.ones(1).double()
    assert comparison.default_tolerances(wide, half) == (1e-3, 1e-5)
    assert comparison.default_tolerances(wide, dtype_precisions={wide.dtype: (1, 2)}) == (1, 2)
    assert comparison.get_tolerances(half, wide, rtol=None, atol=None) == (1e-3, 1e-5)
    assert comparison.get_tolerances(half, rtol=1, atol=2) == (1, 2)
    with pytest.raises(ValueError, match="must both be specified"):
        comparison.get_tolerances(half, rtol=1, atol=None)


def test_what_compilers_and_transforms_are_asked_by_name() -> None:
    names = [kind.name for kind in module("_C._functorch").TransformType]
    assert names == ["Torch", "Vmap", "Grad", "Jvp", "Functionalize"]
    with pytest.warns(UserWarning, match="only once"):
        lucid_gpu._dynamo.utils.warn_once("only once, of test_private_files")
    lucid_gpu._dynamo.utils.warn_once("only once, of test_private_files", 2)


def test_a_convolution_over_time_first() -> None:
    x, w, b = lucid_gpu.randn(5, 2, 3), lucid_gpu.randn(3, 3, 4), lucid_gpu.randn(4)
    expected = nn.functional.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1)
    made = nn.functional.conv_tbc(x, w, b, 1)
    assert lucid_gpu.allclose(made, expected.permute(2, 0, 1), atol=1e-5)
