"""Names that older scripts import, beside PyTorch's."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives, refuses, torch_module

IMPORTED = (
    ("autograd", "Variable"),
    ("autograd.variable", "Variable"),
    ("nn.modules.conv", "_ConvNd"),
    ("nn.modules.conv", "_ConvTransposeNd"),
    ("nn.modules.utils", "_pair"),
    ("nn.modules.utils", "_reverse_repeat_tuple"),
    ("nn.init", "_calculate_fan_in_and_fan_out"),
    ("sparse", "FloatTensor"),
    ("utils.data.dataloader", "DataLoader"),
    ("utils.data.dataloader", "default_collate"),
    ("utils.data.sampler", "Sampler"),
)


@pytest.mark.parametrize(("module", "name"), IMPORTED)
def test_can_be_imported(module: str, name: str) -> None:
    for package in ("lucid_gpu", torch_module().__name__):
        assert hasattr(importlib.import_module(f"{package}.{module}"), name)


def test_cuda_amp_and_the_version_of_cuda_are_attributes(device: str) -> None:
    code = "import lucid_gpu as t; t.cuda.amp.GradScaler(enabled=False); t.cuda.amp.autocast"
    subprocess.run([sys.executable, "-c", code], check=True)
    found = lucid_gpu.version.cuda
    if lucid_gpu.cuda.is_available():
        assert float(found) >= 12
    else:
        assert found is None


def variable(module: Any, device: str) -> Any:
    x = module.ones(2, device=device, requires_grad=True)
    v = module.autograd.Variable(x * 3, requires_grad=True)
    (v * v).sum().backward()
    still = module.autograd.Variable(x)
    with module.no_grad():
        still += 1
    found = [v.grad, v.is_leaf, x.grad is None, x, still.requires_grad]
    return [*found, isinstance(x, module.autograd.Variable), module.autograd.Variable().shape]


def test_a_variable_is_a_new_leaf_of_the_same_memory(device: str) -> None:
    gives([[6, 6], True, True, [2, 2], False, True, (0,)], variable, device)


def sparse(module: Any, device: str) -> Any:
    indices = module.tensor([[0, 1, 1], [2, 0, 2]], device=device)
    values = module.tensor([1.0, 2.0, 3.0], device=device)
    a = module.sparse_coo_tensor(indices, values, (2, 3))
    return module.spmm(a, module.ones(3, 2, device=device))


def test_spmm(device: str) -> None:
    gives([[1, 1], [5, 5]], sparse, device)


MADE: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda s, i, v: s.FloatTensor(i, v, (2, 3)),
    lambda s, i, v: s.FloatTensor(i, v),
    lambda s, i, v: s.LongTensor(i, v.long(), (2, 3)),
    lambda s, i, v: s.FloatTensor(i, v.double()),
    lambda s, i, v: s.DoubleTensor(2, 3),
    lambda s, i, v: s.FloatTensor(),
)


@pytest.mark.filterwarnings("ignore:torch.sparse:UserWarning")
@pytest.mark.parametrize("make", MADE)
def test_types_of_sparse_tensors(make: Callable[[Any, Any, Any], Any]) -> None:
    found = []
    for module in (lucid_gpu, torch_module()):
        indices, values = module.tensor([[0, 1], [2, 0]]), module.tensor([1.0, 2.0])
        x = make(module.sparse, indices, values)
        kinds = [isinstance(x, getattr(module.sparse, n)) for n in ("FloatTensor", "LongTensor")]
        dense = isinstance(x.to_dense(), module.sparse.FloatTensor)
        found.append((x.to_dense().tolist(), str(x.dtype).split(".")[-1], kinds, dense))
    assert found[0] == found[1]


def test_refusals() -> None:
    refuses(TypeError, "Variable data has to be a tensor, but got list",
            lambda module, _: module.autograd.Variable([1.0]))  # fmt: skip
    with pytest.raises(TypeError, match="both tensors, or sizes"):
        lucid_gpu.sparse.FloatTensor([[0]], [1.0])


def helpers(module: Any, device: str) -> Any:
    utils = module.nn.modules.utils
    state = {"module.a": 1, "b": 2}
    utils.consume_prefix_in_state_dict_if_present(state, "module.")
    fans = module.nn.init._calculate_fan_in_and_fan_out(module.empty(4, 3, 5, 5))
    return [utils._pair(3), utils._triple([1, 2]), utils._reverse_repeat_tuple((1, 2), 2),
            sorted(state), fans]  # fmt: skip


def test_helpers_of_layers() -> None:
    importlib.import_module("lucid_gpu.nn.modules.utils")
    gives([[3, 3], [1, 2], [2, 2, 1, 1], ["a", "b"], [75, 100]], helpers)


def wrapped(module: Any, device: str) -> Any:
    net = module.nn.DataParallel(module.nn.Bilinear(2, 2, 1, bias=False))
    module.nn.init.ones_(net.module.weight)
    total = net(module.ones(2), input2=module.ones(2)).sum()
    total.backward()
    return total.cpu(), net.module.weight.grad.cpu(), list(net.state_dict())


def test_data_parallel_calls_its_module_wherever_that_is(device: str) -> None:
    gives([4, [[[1, 1], [1, 1]]], ["module.weight"]], wrapped)
    on_gpu = lucid_gpu.nn.DataParallel(lucid_gpu.nn.Linear(2, 2)).module.weight.is_cuda
    assert on_gpu == lucid_gpu.cuda.is_available()


def test_data_parallel_refuses_several_gpus() -> None:
    with pytest.raises(NotImplementedError, match=r"got device_ids=\[0, 1\]; write device_ids=\[0"):
        lucid_gpu.nn.DataParallel(lucid_gpu.nn.Linear(2, 2), device_ids=[0, 1])
    with pytest.raises(AttributeError, match="leave DistributedDataParallel away"):
        lucid_gpu.nn.parallel.DistributedDataParallel
