"""Names of PyTorch's private files: they work, or refuse in a sentence when used."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import _utils, cuda, nn, sparse
from lucid_gpu.fx import Interpreter, Tracer, symbolic_trace, traceback
from lucid_gpu.nn import parallel
from lucid_gpu.nn.parallel import _functions


def module_of(name: str) -> Any:
    return importlib.import_module(f"lucid_gpu.{name}")


def numbers(t: Any) -> Any:
    return t.detach().cpu().numpy()


# --- several devices ------------------------------------------------------------------------------


class Tied(nn.Module):
    """A weight that two layers share, and running means."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.norm(self.second(self.first(x).tanh())) * scale


def test_replicas_send_gradients_to_one_module(device: str) -> None:
    lucid_gpu.manual_seed(0)
    net, where = Tied().to(device), lucid_gpu.zeros(1, device=device).device
    net.eval()
    x = lucid_gpu.randn(4, 3, device=device)
    net(x).square().sum().backward()
    expected = [numbers(p.grad) for p in net.parameters()]
    net.zero_grad()
    copies = parallel.replicate(net, [where, where])
    assert copies[0].first.weight is copies[0].second.weight
    assert all(type(c) is Tied and not list(c.parameters()) for c in copies)
    parts = parallel.scatter(x, [where, where])
    outputs = parallel.parallel_apply(copies, parts, [{"scale": 1.0}, {}])
    parallel.gather(outputs, where).square().sum().backward()
    for p, g in zip(net.parameters(), expected, strict=True):
        np.testing.assert_allclose(numbers(p.grad), g, rtol=1e-5, atol=1e-6)
    (cut,) = parallel.replicate(net, [where], detach=True)
    assert not cut(x).requires_grad
    whole = parallel.data_parallel(net, x, [where, where], module_kwargs={"scale": 2.0})
    np.testing.assert_allclose(numbers(whole), numbers(net(x, 2.0)), 1e-5)


def test_replicas_write_the_running_means(device: str) -> None:
    norm = nn.BatchNorm1d(2).to(device)
    (copy,) = parallel.replicate(norm, [norm.weight.device])
    copy(lucid_gpu.full((3, 2), 4.0, device=device))
    assert norm.running_mean.tolist() == pytest.approx([0.4, 0.4])


def test_modules_and_inputs_are_as_many() -> None:
    with pytest.raises(
        AssertionError, match="number of modules 1 is not equal to the number of inp"
    ):
        parallel.parallel_apply([nn.Identity()], [])
    assert parallel.data_parallel(nn.Identity(), lucid_gpu.ones(2), []).tolist() == [1, 1]
    for name in ("replicate", "parallel_apply", "scatter_gather", "data_parallel", "comm"):
        assert module_of(f"nn.parallel.{name}").__name__.endswith(name)
    assert callable(parallel.replicate) and callable(parallel.parallel_apply)


def test_functions_between_devices_have_gradients(device: str) -> None:
    x = lucid_gpu.arange(4.0, device=device, requires_grad=True)
    y = lucid_gpu.ones(2, device=device, requires_grad=True)
    where = x.device
    four = _functions.Broadcast.apply([where, where], x, y)
    assert [t.shape[0] for t in four] == [4, 2, 4, 2]
    a, b = _functions.ReduceAddCoalesced.apply(where, 2, *four)
    parts = _functions.Scatter.apply([where, where], [1, 3], 0, a)
    assert [len(p) for p in parts] == [1, 3]
    joined = _functions.Gather.apply(where, 0, parts[1], b.sum())
    joined.sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([0, 2, 2, 2], [2, 2])


# --- functions of layers, settings ----------------------------------------------------------------


def test_functions_of_layers(device: str) -> None:
    functions = module_of("nn.modules._functions")
    x = lucid_gpu.rand(1, 4, 2, 2, device=device)
    layer = nn.CrossMapLRN2d(3, 0.1, 0.5, 2.0)
    assert functions.CrossMapLRN2d.apply(x, 3, 0.1, 0.5, 2.0).tolist() == layer(x).tolist()
    y = lucid_gpu.ones(2, device=device, requires_grad=True)
    same, still = functions.BackwardHookFunction.apply(y, x)
    assert type(same.grad_fn).__name__ == "BackwardHookFunctionBackward"
    assert not still.requires_grad
    (same * 3).sum().backward()
    assert y.grad.tolist() == [3, 3]
    with pytest.raises(NotImplementedError, match="call nn.SyncBatchNorm, the layer"):
        functions.SyncBatchNorm.apply(x)


def test_the_setting_of_sparse_checks() -> None:
    setting = sparse.check_sparse_tensor_invariants
    assert not setting.is_enabled()
    with setting(), setting(False):
        assert not setting.is_enabled()
    with setting():
        assert setting.is_enabled()
    setting.enable()
    assert setting(False)(setting.is_enabled)() is False and setting.is_enabled()
    setting.disable()
    assert not setting.is_enabled()
    with pytest.raises(RuntimeError, match="found index 5"):  # in any case
        lucid_gpu.sparse_coo_tensor([[5]], [1.0], (2,))


# --- tensors from their parts ---------------------------------------------------------------------


def test_tensors_are_made_of_their_parts(device: str) -> None:
    whole = lucid_gpu.arange(6.0, device=device)
    storage = whole.storage()
    made = _utils._rebuild_tensor(storage, 1, (2, 2), (1, 2))
    assert made.tolist() == [[1, 3], [2, 4]] and made.stride() == (1, 2)
    made[0, 0] = 9
    assert whole[1] == 9
    made = _utils._rebuild_tensor_v2(storage, 0, (2,), (3,), True, {})
    assert made.requires_grad and made.tolist() == [0, 3]
    other = _utils._rebuild_tensor_v3(storage, 0, (1,), (1,), False, {}, lucid_gpu.int32)
    assert other.dtype is lucid_gpu.int32
    parameter = _utils._rebuild_parameter_with_state(made.detach(), False, {}, {"note": 3})
    assert isinstance(parameter, nn.Parameter) and parameter.note == 3
    meta = _utils._rebuild_meta_tensor_no_storage(lucid_gpu.float16, (2, 3), (1, 2), True)
    assert (meta.device.type, meta.stride(), meta.requires_grad) == ("meta", (1, 2), True)
    made = _utils._rebuild_device_tensor_from_numpy(np.ones(2), lucid_gpu.float32, device, True)
    assert made.dtype is lucid_gpu.float32 and made.requires_grad and made.device == whole.device


def test_sparse_tensors_are_made_of_their_parts(device: str) -> None:
    x = lucid_gpu.tensor([[0.0, 2.0], [3.0, 0.0]], device=device).to_sparse()
    parts = (x.indices(), x.values(), tuple(x.shape), True)
    again = _utils._rebuild_sparse_tensor(lucid_gpu.sparse_coo, parts)
    assert again.to_dense().tolist() == x.to_dense().tolist() and again.is_coalesced()
    flat = _utils._flatten_sparse_tensors([x, again])
    assert [t.numel() for t in flat] == [8, 4]
    back = _utils._unflatten_sparse_tensors(flat, [x, again])
    assert [t.to_dense().tolist() for t in back] == [x.to_dense().tolist()] * 2
    with pytest.raises(NotImplementedError, match="rebuilding sparse tensor for layout"):
        _utils._rebuild_sparse_tensor(lucid_gpu.strided, parts)
    with pytest.raises(NotImplementedError, match="dequantize"):
        _utils._rebuild_qtensor()


def test_small_things_of_utils() -> None:
    class Named:
        @_utils.classproperty
        def label(cls) -> str:
            return cls.__name__  # type: ignore[attr-defined]

    assert Named.label == Named().label == "Named"
    assert repr(_utils.KeyErrorMessage("a\nb")) == "a\nb"
    assert _utils._import_dotted_name("pickle.dumps") is pickle.dumps
    assert _utils._get_current_device_index() >= -1


# --- GPUs -----------------------------------------------------------------------------------------


@pytest.mark.skipif(cuda.is_available(), reason="says what is missing without a GPU")
def test_without_a_gpu_it_is_said() -> None:
    assert cuda.default_generators[:] == () and list(cuda.default_generators) == []
    asked = [cuda.cudart, cuda.utilization, cuda.temperature, cuda.current_blas_handle]
    for function in (*asked, cuda.profiler.start, lambda: cuda.profiler.profile().__enter__()):
        with pytest.raises(RuntimeError, match="no cuda device can be used|AssertionError|CUDA"):
            function()


def test_what_gpus_do_not_have_is_refused() -> None:
    for name in ("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"):
        with pytest.raises(NotImplementedError, match="CuPy's pool"):
            getattr(cuda, name)()
    for name in ("range_start", "range_end"):
        with pytest.raises(NotImplementedError, match="write range_push"):
            getattr(cuda.nvtx, name)("x")
    with pytest.raises(NotImplementedError, match="waiting for a GPU is not reported"):
        cuda.set_sync_debug_mode("warn")
    cuda.set_sync_debug_mode("default")
    assert (cuda.get_sync_debug_mode(), cuda.get_allocator_backend()) == (0, "native")
    cuda.check_error(cuda.cudaStatus.SUCCESS)
    assert cuda.ipc_collect() is None


def test_the_runtime_of_cuda(device: str) -> None:
    if device == "cpu":
        pytest.skip("of a GPU")
    with pytest.raises(AttributeError, match="no function 'cudaNothing'"):
        cuda.cudart().cudaNothing
    assert cuda.cudart().cudaDeviceSynchronize() == cuda.cudaStatus.SUCCESS
    assert cuda.default_generators[0] is lucid_gpu.default_generator


# --- graphs that are traced -----------------------------------------------------------------------


def test_nodes_are_given_what_is_set_for_them() -> None:
    class Two(nn.Module):
        def forward(self, x: Any) -> Any:
            with traceback.annotate({"stage": 1}):
                y = x + 1
            return traceback.annotate_fn({"stage": 2})(lambda: y * 2)()

    assert not traceback.has_preserved_node_meta()
    plain = Tracer().trace(Two())
    assert all("custom" not in node.meta for node in plain.nodes)
    with traceback.preserve_node_meta():
        traceback.set_stack_trace(["here\n"])
        graph = Tracer().trace(Two())
        assert traceback.format_stack() == ["here\n"]
    assert traceback.get_current_meta() == {} and traceback.format_stack()
    stages = {n.name: n.meta.get("custom") for n in graph.nodes}
    assert stages == {"x": None, "add": {"stage": 1}, "mul": {"stage": 2}, "output": None}
    assert {n.meta["stack_trace"] for n in graph.nodes} == {"here\n"}


def test_an_interpreter_says_whose_node_it_runs() -> None:
    traced = symbolic_trace(lambda x: (x + 1) * 2)
    for node in traced.graph.nodes:
        node.meta["custom"] = node.name
    seen = []

    class Watching(Interpreter):
        def call_function(self, *given: Any) -> Any:
            seen.append(traceback.get_current_meta().get("custom"))
            return super().call_function(*given)

    with traceback.preserve_node_meta():
        Watching(traced).run(3)
        traceback.set_grad_fn_seq_nr(7)
        assert traceback.get_current_meta()["grad_fn_seq_nr"] == [7]
        traceback.reset_grad_fn_seq_nr()
        with pytest.raises(AssertionError, match="Expected current_level > 0"):
            traceback.reset_grad_fn_seq_nr()
    Watching(traced).run(3)
    assert seen == ["add", "mul", None, None]
    node = next(iter(traced.graph.nodes))
    with traceback.set_current_replay_node(node):
        assert traceback.get_current_replay_node() is node
    assert traceback.get_current_replay_node() is None
