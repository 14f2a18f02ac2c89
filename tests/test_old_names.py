"""Names that older scripts import, and what the newest ask for, beside PyTorch's."""

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
    ("autograd", "set_multithreading_enabled"),
    ("autograd.grad_mode", "set_grad_enabled"),
    ("autograd.grad_mode", "set_multithreading_enabled"),
    ("autograd.variable", "Variable"),
    ("nn.modules.conv", "_ConvNd"),
    ("nn.modules.conv", "_ConvTransposeNd"),
    ("nn.modules.utils", "_pair"),
    ("nn.utils.memory_format", "convert_conv2d_weight_memory_format"),
    ("nn.modules.utils", "_reverse_repeat_tuple"),
    ("nn.modules.loss", "_WeightedLoss"),
    ("nn.grad", "conv2d_weight"),
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
    return [product(a, module.ones(3, 2, device=device)) for product in (module.spmm, module.dsmm)]


def test_spmm_and_dsmm(device: str) -> None:
    gives([[[1, 1], [5, 5]]] * 2, sparse, device)


def test_serialization_has_the_module_that_defaults_name() -> None:
    gives(
        [b"a", 2],
        lambda m, _: [m.serialization.pickle.loads(b"C\x01a."), m.serialization.DEFAULT_PROTOCOL],
    )


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


class Smoothed:
    """What scripts write on the base of weighted losses."""

    def __new__(cls, module: Any, **settings: Any) -> Any:
        class SmoothedLoss(module.nn.modules.loss._WeightedLoss):
            def __init__(self, weight: Any = None, reduction: str = "mean", by: float = 0.5):
                super().__init__(weight=weight, reduction=reduction)
                self.by = by

            def forward(self, scores: Any, targets: Any) -> Any:
                loss = module.nn.functional.binary_cross_entropy_with_logits
                return loss(scores, targets * self.by, self.weight, reduction=self.reduction)

        return SmoothedLoss(**settings)


def own_loss(module: Any, device: str) -> Any:
    loss = Smoothed(module, weight=module.ones(2, device=device), reduction="sum")
    zeros = module.zeros(2, device=device)
    plain = module.nn.modules.loss._Loss(reduction="none")
    known = [isinstance(module.nn.CrossEntropyLoss(), module.nn.modules.loss._WeightedLoss)]
    return [round(loss(zeros, zeros).item(), 4), list(loss.state_dict()), plain.reduction, *known]


def test_losses_of_ones_own(device: str) -> None:
    gives([1.3863, ["weight"], "none", True], own_loss, device)


NUMBERS_FIRST: dict[str, tuple[Callable[..., Any], Any]] = {
    "add": (lambda m, x, y: m.add(x, 2, y), [7, 10]),
    "add_": (lambda m, x, y: x.mul_(0.5).add_(0.5, y), [2, 3]),
    "a 0-d tensor": (lambda m, x, y: x.add_(x.new_tensor(2.0), y), [7, 10]),
    "sub": (lambda m, x, y: x.sub(2, y), [-5, -6]),
    "addcmul_": (lambda m, x, y: x.addcmul_(2, y, y), [19, 34]),
    "addcdiv_": (lambda m, x, y: x.addcdiv_(-2, y, x), [-5, -2]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, given once a process
@pytest.mark.parametrize("name", NUMBERS_FIRST)
def test_numbers_before_tensors(name: str, device: str) -> None:
    function, expected = NUMBERS_FIRST[name]

    def called(module: Any, where: str) -> Any:
        x, y = module.tensor([1.0, 2.0], device=where), module.tensor([3.0, 4.0], device=where)
        return function(module, x, y)

    gives(expected, called, device)


def test_numbers_before_tensors_are_warned_of() -> None:
    x = lucid_gpu.ones(2)
    with pytest.warns(UserWarning, match="overload of add is deprecated: .* as alpha=") as told:
        x.add_(0.5, x)
    assert told[0].filename == __file__
    for call in (lambda m, x: x.add(x, 2), lambda m, x: x.addcmul(x, x, 2),
                 lambda m, x: x.add(1, x, x)):  # fmt: skip
        refuses(TypeError, "add", lambda m, _, call=call: call(m, m.ones(2)))


def test_the_accelerator_is_a_gpu_or_none(device: str) -> None:
    found = lucid_gpu.accelerator.current_accelerator()
    assert lucid_gpu.accelerator.is_available() is lucid_gpu.cuda.is_available()
    if found is None:
        assert lucid_gpu.accelerator.device_count() == 0
        for name, *given in (("synchronize",), ("set_device_index", 0), ("current_device_index",)):
            with pytest.raises(RuntimeError, match="no cuda device can be used"):
                getattr(lucid_gpu.accelerator, name)(*given)
    else:
        assert found.type == "cuda" and found.index is None
        assert lucid_gpu.ones(1, device=found).device.index == (
            lucid_gpu.accelerator.current_device_index()
        )


def test_names_of_the_accelerator_are_torchs() -> None:
    theirs = {n for n in dir(torch_module().accelerator) if not n.startswith("_")}
    assert set(lucid_gpu.accelerator.__all__) <= theirs


def test_modules_are_attributes_of_a_fresh_package() -> None:
    code = "import lucid_gpu as t; t.serialization.add_safe_globals([]); t.accelerator.is_available"
    subprocess.run([sys.executable, "-c", code], check=True)


def guarded_by_availability(module: Any, device: str) -> Any:
    """Lines that scripts for one process and for many begin with."""
    dist = importlib.import_module(f"{module.__name__}.distributed")
    many = dist.is_available() and dist.is_initialized()
    return [many, dist.get_world_size() if many else 1]


def test_one_process_is_not_distributed() -> None:
    gives([False, 1], guarded_by_availability)
    assert lucid_gpu.distributed.is_available()
