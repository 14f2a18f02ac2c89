"""Modules of PyTorch that packages import: what they answer, do, and refuse."""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, List, Optional  # noqa: UP035 - as TorchScript's users write them

import pytest

import lucid_gpu
from lucid_gpu import nn, utils

jit: Any = lucid_gpu.jit


def add_one(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize(
    "decorate",
    [
        jit.script, jit.unused, jit.ignore, jit.ignore(), jit.ignore(drop=True), jit.export,
        jit.script_method, jit.script_if_tracing, jit.trace(), jit._overload,
        lambda f: jit.trace(f, (lucid_gpu.ones(1),)), lucid_gpu._dynamo.disable,
        lucid_gpu.compiler.allow_in_graph, lucid_gpu.compiler.assume_constant_result,
        lucid_gpu._dynamo.allow_in_graph, lucid_gpu._dynamo.optimize("eager"), lucid_gpu.fx.wrap,
        importlib.import_module("lucid_gpu.onnx.symbolic_helper").parse_args("v", "f"),
    ],
)  # fmt: skip
def test_decorators_give_back_what_they_got(decorate: Callable[..., Any]) -> None:
    assert decorate(add_one) is add_one


def test_what_a_compiler_would_be_asked() -> None:
    compiler = lucid_gpu.compiler
    assert not compiler.is_exporting() and not compiler.is_dynamo_compiling()
    assert compiler.reset() is None
    assert not jit.is_scripting() and not jit.is_tracing()
    assert not lucid_gpu.onnx.is_in_onnx_export() and not lucid_gpu._dynamo.is_compiling()
    assert lucid_gpu._C._get_tracing_state() is None
    assert jit.annotate(int, 3) == 3
    assert jit.isinstance([1, 2], List[int]) and not jit.isinstance(["a"], List[int])  # noqa: UP006
    assert jit.isinstance(None, Optional[int])  # noqa: UP045
    assert jit.isinstance((1, "a"), tuple[int, str])
    assert jit.wait(jit.fork(add_one, 2)) == 3
    assert not isinstance(nn.Linear(1, 1), jit.ScriptModule)


@pytest.mark.parametrize(
    "call",
    [
        lambda: jit.save(nn.Linear(1, 1), "x"), lambda: jit.load("x"),
        lambda: lucid_gpu.onnx.export(nn.Linear(1, 1), (), "x"),
        lambda: lucid_gpu.fx.symbolic_trace(nn.Linear(1, 1)), lambda: lucid_gpu.fx.Tracer(),
        lambda: utils.cpp_extension.load("x", []), lambda: utils.cpp_extension.CUDAExtension("x"),
        lambda: lucid_gpu.hub.load("a/b", "c"), lambda: lucid_gpu.library.get_ctx(),
        lambda: lucid_gpu.ao.quantization.prepare(nn.Linear(1, 1)),
        lambda: lucid_gpu.ao.quantization.ObserverBase(),
        lambda: jit._get_trace_graph(nn.Linear(1, 1), ()),
    ],
)  # fmt: skip
def test_what_cannot_work_says_what_to_write(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"lucid_gpu\.[\w.]+: .*(;|by|install)"):
        call()


# --- trees ----------------------------------------------------------------------------------------

Point = namedtuple("Point", "x y")


class Pair:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


TREES: list[Any] = [
    1,
    None,
    [1, (2, {"a": 3, "b": [4]})],
    Point(1, [2]),
    OrderedDict(b=1, a=(2,)),
    deque([1, [2]], maxlen=3),
    [],
    {"x": ()},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_as_in_pytorch(tree: Any) -> None:
    theirs = pytest.importorskip("torch.utils._pytree")
    ours = utils._pytree
    leaves, spec = ours.tree_flatten(tree)
    right, other = theirs.tree_flatten(tree)
    assert leaves == right and spec.num_leaves == other.num_leaves
    assert spec.num_nodes == other.num_nodes and spec.is_leaf() == other.is_leaf()
    assert ours.tree_unflatten(leaves, spec) == tree
    assert type(ours.tree_unflatten(leaves, spec)) is type(tree)
    assert ours.tree_map(str, tree) == theirs.tree_map(str, tree)
    assert ours.tree_map(lambda a, b: (a, b), tree, tree) == theirs.tree_map(
        lambda a, b: (a, b), tree, tree
    )
    assert spec == ours.tree_structure(tree) and hash(spec) == hash(ours.tree_structure(tree))


def test_trees_of_a_registered_type() -> None:
    tree = utils._pytree
    tree.register_pytree_node(Pair, lambda p: ([p.a, p.b], "more"), lambda c, more: Pair(*c))
    doubled = tree.tree_map(lambda x: x * 2, [Pair(1, (2,))])
    assert (doubled[0].a, doubled[0].b) == (2, (4,))
    x = lucid_gpu.tensor([1.0, 2.0])
    total = lucid_gpu.func.grad(lambda p: (p.a * p.b[0]).sum())(Pair(x, (x * 3,)))
    assert total.a.tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(Pair, list, list)


def test_trees_other_questions() -> None:
    tree = utils._pytree
    assert tree.tree_map_only(int, lambda x: -x, [1, "a"]) == [-1, "a"]
    assert tree.tree_leaves([1, (2, 3)], is_leaf=lambda t: isinstance(t, tuple)) == [1, (2, 3)]
    assert tree.tree_any(lambda x: x > 2, [1, 3]) and not tree.tree_all(lambda x: x > 2, [1, 3])
    pairs, _ = tree.tree_flatten_with_path({"a": [1, 2]})
    assert [[k[0] for k in path] for path, _ in pairs] == [["a", 0], ["a", 1]]
    with pytest.raises(ValueError, match="not of the structure"):
        tree.tree_map(add_one, [1, 2], [1])
    with pytest.raises(ValueError, match="has length 1"):
        tree.tree_unflatten([1], tree.tree_structure([1, 2]))


# --- the rest -------------------------------------------------------------------------------------


def test_a_custom_op_with_a_gradient() -> None:
    library: Any = lucid_gpu.library

    @library.custom_op("tests::cube", mutates_args=())
    def cube(x: lucid_gpu.Tensor) -> lucid_gpu.Tensor:
        return x**3

    @cube.register_fake
    def _(x: Any) -> Any:
        raise AssertionError("nothing asks for shapes")

    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3 * ctx.saved_tensors[0] ** 2

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    library.register_autograd("tests::cube", backward, setup_context=save)
    x = lucid_gpu.tensor(2.0, requires_grad=True)
    cube(x).backward()
    assert x.grad is not None and x.grad.item() == 12.0
    with pytest.raises(RuntimeError, match="there is no op 'tests::square'"):
        library.register_autograd("tests::square", backward)


def test_flat_lists() -> None:
    flat: Any = lucid_gpu._utils
    tensors = [lucid_gpu.ones(2, 2), lucid_gpu.zeros(3)]
    row = flat._flatten_dense_tensors(tensors)
    assert row.shape == (7,)
    parts = flat._unflatten_dense_tensors(row, tensors)
    assert [p.tolist() for p in parts] == [t.tolist() for t in tensors]
    grouped = flat._take_tensors([lucid_gpu.ones(4)] * 3, 32)
    assert [len(group) for group in grouped] == [2, 1]


def test_weights_from_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "linear.pt"
    lucid_gpu.save(nn.Linear(2, 1).state_dict(), source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    named = source.rename(tmp_path / f"linear-{digest}.pt")
    hub: Any = lucid_gpu.hub
    read = hub.load_state_dict_from_url(named.as_uri(), str(tmp_path / "kept"), check_hash=True)
    assert sorted(read) == ["bias", "weight"]
    said = capsys.readouterr().err
    assert said.startswith("Downloading") and "100%" in said
    named.unlink()
    hub.load_state_dict_from_url(named.as_uri(), str(tmp_path / "kept"))  # it is there
    wrong = tmp_path / "other-00000000.pt"
    wrong.write_bytes(b"x")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(wrong.as_uri(), str(tmp_path / "kept"), check_hash=True)
    assert [p.name for p in (tmp_path / "kept").iterdir()] == [named.name]


def test_futures() -> None:
    futures: Any = lucid_gpu.futures
    one, two = futures.Future(), futures.Future()
    both, after = futures.collect_all([one, two]), one.then(lambda f: f.value() + 1)
    one.set_result(1)
    assert after.wait() == 2 and not both.done()
    two.set_exception(ValueError("no"))
    assert both.wait() == [one, two]
    with pytest.raises(ValueError, match="no"):
        two.wait()
    with pytest.raises(RuntimeError, match="set once"):
        one.set_result(2)


def test_old_places_of_names() -> None:
    assert lucid_gpu._tensor.Tensor is lucid_gpu.Tensor
    assert lucid_gpu.functional.einsum is lucid_gpu.einsum
    assert utils.hooks.RemovableHandle is type(
        lucid_gpu.ones(1, requires_grad=True).register_hook(add_one)
    )
    assert utils.model_zoo.load_url is lucid_gpu.hub.load_state_dict_from_url
    assert "lucid_gpu" in utils.collect_env.get_pretty_env_info()
    assert not lucid_gpu.overrides.has_torch_function((lucid_gpu.ones(1),))
    assert lucid_gpu.overrides.is_tensor_like(lucid_gpu.ones(1))
    assert lucid_gpu.types.Number and lucid_gpu._C._TensorBase is lucid_gpu.Tensor
    assert lucid_gpu.cpu.device_count() == 1 and lucid_gpu._six.inf == float("inf")


def test_private_names_that_packages_call() -> None:
    x = lucid_gpu.ones(1, 2, 5, 5)
    assert not any((x.is_mps, x.is_xpu, x.is_xla, x.is_quantized, x.is_meta, x.is_nested))
    conv = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")
    doubled = conv._conv_forward(x, conv.weight * 2, None)
    assert lucid_gpu.allclose(doubled, (conv(x) - conv.bias.view(3, 1, 1)) * 2, atol=1e-5)
    normal = lucid_gpu.distributions.utils._standard_normal
    assert normal((2, 3), lucid_gpu.float64, None).dtype is lucid_gpu.float64
    assert utils.checkpoint.get_device_states(x, 1) == ([], [])
    utils.checkpoint.set_device_states([], [])
    assert lucid_gpu.autograd._is_checkpoint_valid() and lucid_gpu.cuda._initialized in (0, 1)
    lucid_gpu._assert(True, "never")
    with pytest.raises(AssertionError, match="so it is"):
        lucid_gpu._assert(False, "so it is")


def test_a_checkpoint_inside_a_pass_for_certain_inputs_is_not_valid() -> None:
    seen = []
    x = lucid_gpu.ones(2, requires_grad=True)
    y = (x * 2).exp()
    y.register_hook(lambda g: seen.append(lucid_gpu.autograd._is_checkpoint_valid()))
    y.sum().backward(retain_graph=True)
    lucid_gpu.autograd.grad(y.sum(), x)
    assert seen == [True, False]


def test_lists_grouped_by_device_and_type() -> None:
    from lucid_gpu.utils._foreach_utils import _group_tensors_by_device_and_dtype

    a, b, c = lucid_gpu.ones(1), lucid_gpu.ones(2, dtype=lucid_gpu.float64), lucid_gpu.ones(3)
    groups = _group_tensors_by_device_and_dtype([[a, b, c], [c, None, a]], with_indices=True)
    singles = groups[a.device, lucid_gpu.float32]
    assert [[t.numel() for t in row] for row in singles[0]] == [[1, 3], [3, 1]]
    assert singles[1] == [0, 2]
    doubles = groups[b.device, lucid_gpu.float64]
    assert doubles[0][0][0] is b and doubles[0][1] == [None] and doubles[1] == [1]
    with pytest.raises(RuntimeError, match="tensors only"):
        _group_tensors_by_device_and_dtype([[None]])


def test_names_in_annotations_and_reports() -> None:
    from lucid_gpu.distributions.utils import _sum_rightmost
    from lucid_gpu.serialization import MAP_LOCATION

    assert _sum_rightmost(lucid_gpu.ones(2, 3, 4), 2).tolist() == [12.0, 12.0]
    assert str in MAP_LOCATION.__args__
    assert "NumPy" in lucid_gpu.__config__.show() and lucid_gpu.__config__.parallel_info()


def test_types_in_annotations() -> None:
    from lucid_gpu.nn.common_types import _maybe_indices_t, _size_2_t, _size_any_t

    assert int in _size_2_t.__args__ and tuple[int, int] in _size_2_t.__args__
    assert tuple[int, ...] in _size_any_t.__args__
    assert lucid_gpu.Tensor in _maybe_indices_t.__args__


def test_types_that_are_names_only():
    for name in ("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2"):
        named = getattr(lucid_gpu, name)
        assert isinstance(named, lucid_gpu.dtype)
        assert named != lucid_gpu.ones(1).dtype and pickle.loads(pickle.dumps(named)) is named
        for use in (
            lambda d: lucid_gpu.ones(1, dtype=d),
            lambda d: lucid_gpu.ones(1).to(d),
            lambda d: lucid_gpu.ones(1).view(d),
            lambda d: lucid_gpu.promote_types(d, lucid_gpu.float32),
        ):
            with pytest.raises(TypeError, match=f"{name} is a name to compare with"):
                use(named)


def test_ops_by_the_names_of_aten():
    aten: Any = lucid_gpu.ops.aten
    assert aten.add.Tensor is aten.add.Tensor and aten.add.Tensor is not aten.add.Scalar
    assert aten.add.Tensor(lucid_gpu.ones(2), 1).tolist() == [2.0, 2.0]
    assert aten.view.default(lucid_gpu.ones(2), (2, 1)).shape == (2, 1)
    with pytest.raises(NotImplementedError, match=r"aten\._to_copy has no function here"):
        aten._to_copy.default(lucid_gpu.ones(2))
    with pytest.raises(AttributeError):
        lucid_gpu.ops.bten


def test_what_packages_ask_of_other_modules():
    from lucid_gpu._subclasses.fake_tensor import unset_fake_temporarily

    from lucid_gpu import _C, _subclasses, _tensor_str

    with unset_fake_temporarily(), lucid_gpu.backends.mkldnn.flags(enabled=False):
        assert not isinstance(lucid_gpu.ones(1), _subclasses.FakeTensor)
    assert not lucid_gpu.backends.mkldnn.is_available() and lucid_gpu.backends.cuda.is_built()
    with pytest.raises(RuntimeError, match="there are no fake tensors"):
        _subclasses.FakeTensorMode()
    assert _tensor_str._tensor_str(lucid_gpu.eye(2), 1) == "[[1., 0.],\n  [0., 1.]]"
    assert _tensor_str._str(lucid_gpu.ones(1), tensor_contents="[one]") == "tensor([one])"
    rows = lucid_gpu.tensor([0, 0, 2])
    assert _C._convert_indices_from_coo_to_csr(rows, 4).tolist() == [0, 2, 2, 3, 3]
    with pytest.raises(RuntimeError, match="too few"):
        _C._check(False, lambda: "too few")
    kinds = {"index": IndexError, "value": ValueError, "type": TypeError, "is_size": RuntimeError}
    for name, kind in kinds.items():
        with pytest.raises(kind, match="Expected cond to be True"):
            getattr(lucid_gpu, f"_check_{name}")(-1 if name == "is_size" else False)
    with pytest.raises(RuntimeError, match="some"):
        lucid_gpu._check_tensor_all(lucid_gpu.tensor([True, False]), lambda: "some")
    with pytest.raises(TypeError, match="cond must be a bool"):
        lucid_gpu._check(1)
    with pytest.raises(RuntimeError, match="single nonzero value"):
        lucid_gpu._assert_async(lucid_gpu.tensor(0))
    assert lucid_gpu._utils._element_size(lucid_gpu.bfloat16) == 2
    bytes_ = lucid_gpu.full((2, 2), 100, dtype=lucid_gpu.int8)
    product = lucid_gpu._int_mm(bytes_, bytes_)
    assert product.dtype is lucid_gpu.int32 and product.tolist() == [[20000] * 2] * 2
    with pytest.raises(RuntimeError, match="mat2 dtype to be of type int8 but got int32"):
        lucid_gpu._int_mm(bytes_, product)


def test_what_asks_whether_something_is_traced_or_remote():
    from lucid_gpu.fx.experimental.proxy_tensor import get_proxy_mode
    from lucid_gpu.fx.node import Node

    from lucid_gpu.distributed import rpc

    assert not lucid_gpu.is_autocast_enabled("mps")
    assert get_proxy_mode() is None and not rpc.is_available() and Node is lucid_gpu.fx.Node


def test_names_that_packages_import() -> None:
    assert lucid_gpu.distributed.ReduceOp.RedOpType is lucid_gpu.distributed.ReduceOp
    assert len(list(lucid_gpu.distributed.ReduceOp)) == 8
    collate = lucid_gpu.utils.data._utils.collate
    assert collate.collate_tensor_fn([lucid_gpu.ones(2)] * 3).shape == (3, 2)
    assert lucid_gpu.strided is not lucid_gpu.sparse_csr and lucid_gpu.version.hip is None
    assert lucid_gpu.finfo(lucid_gpu.float8_e4m3fn).max == 448.0
    assert lucid_gpu.iinfo(lucid_gpu.uint16).max == 65535
    assert not isinstance(nn.Linear(1, 1), lucid_gpu._dynamo.OptimizedModule)
    values, keys = utils._pytree._dict_flatten({"a": 1})
    assert utils._pytree._dict_unflatten(values, keys) == {"a": 1}
    with pytest.warns(UserWarning, match="sees none"), lucid_gpu.overrides.TorchFunctionMode():
        pass
    with pytest.raises(RuntimeError, match="archives are read by"):
        lucid_gpu.PyTorchFileReader("x")
    functional = lucid_gpu.distributed._functional_collectives
    one = lucid_gpu.ones(2)
    assert functional.wait_tensor(one) is one
    where, kind, late, order = lucid_gpu._C._nn._parse_to("cpu", lucid_gpu.float64)
    assert (str(where), kind, late, order) == ("cpu", lucid_gpu.float64, False, None)
    assert not lucid_gpu.profiler.kineto_available() and lucid_gpu.ScriptModule


@pytest.mark.parametrize("container", [[1, 2], (1,), {"a": 1, "b": 2}, Point(1, 2)], ids=str)
def test_nodes_are_taken_apart_one_level(container: Any) -> None:
    tree: Any = utils._pytree
    node = tree.SUPPORTED_NODES[tree._get_node_type(container)]
    children, context = node.flatten_fn(container)
    assert list(children) == tree.tree_leaves(container)
    assert node.unflatten_fn(children, context) == container
    spec = tree.TreeSpec(type(container), context, [tree.LeafSpec() for _ in children])
    assert spec == tree.tree_structure(container) and int not in tree.SUPPORTED_NODES


def test_nodes_that_tests_of_errors_use() -> None:
    functions: Any = lucid_gpu._C._functions
    x = lucid_gpu.ones(2, requires_grad=True)
    late = functions.DelayedError("too late", 1)(x)
    with pytest.raises(RuntimeError, match="too late"):
        (late * 2).sum().backward()
    functions.UndefinedGrad()(x * 2).sum().backward()
    assert x.grad is None
    assert isinstance((x + x).grad_fn.next_functions[0][0], functions.AccumulateGrad)


def test_weak_references_expire_with_their_tensors() -> None:
    x = lucid_gpu.ones(2)
    reference = lucid_gpu._C._WeakTensorRef(x)
    assert not reference.expired()
    del x
    assert reference.expired()


def test_functions_are_where_pytorch_has_them() -> None:
    inner: Any = lucid_gpu._functorch
    assert inner.eager_transforms.grad is lucid_gpu.func.grad is inner.apis.grad
    assert inner.vmap.vmap is lucid_gpu.vmap
    chosen = inner.eager_transforms._slice_argnums
    assert chosen((1, 2, 3), (0, -1)) == (1, 3)
    assert chosen((1, 2, 3), 1, as_tuple=False) == 2
    with pytest.raises(RuntimeError, match="must be unique"):
        chosen((1, 2), (0, -2))


def test_placements() -> None:
    import lucid_gpu.distributed.tensor.placement_types as types

    shard, whole, terms = types.Shard(1), types.Replicate(), types.Partial()
    assert all(isinstance(p, types.Placement) for p in (shard, whole, terms))
    assert [p.is_shard() for p in (shard, whole, terms)] == [True, False, False]
    assert shard.is_shard(1) and not shard.is_shard(0) and shard == types.Shard(1)
    assert [p.is_replicate() for p in (shard, whole, terms)] == [False, True, False]
    assert [p.is_partial() for p in (shard, whole, terms)] == [False, False, True]
    assert terms.is_partial("sum") and not terms.is_partial("max")
    with pytest.raises(NotImplementedError, match=r"write Shard\(0\)"):
        types._StridedShard(0, split_factor=2)
    assert not isinstance(shard, types._StridedShard)


@pytest.mark.parametrize(("rows", "ranks"), [(8, 4), (7, 4), (5, 4), (1, 4), (0, 4), (9, 1)])
def test_rows_of_ranks_are_torchs(rows: int, ranks: int) -> None:
    theirs = pytest.importorskip("torch.distributed.tensor.placement_types").Shard
    ours = lucid_gpu.distributed.tensor.Shard
    for rank in range(ranks):
        wanted = theirs.local_shard_size_and_offset(rows, ranks, rank)
        assert ours.local_shard_size_and_offset(rows, ranks, rank) == tuple(wanted)


class Mesh:
    """Rank (1, 0) of a mesh of 2 by 3."""

    def size(self, dim: int) -> int:
        return (2, 3)[dim]

    def get_coordinate(self) -> list[int] | None:
        return [1, 0]


def test_the_part_of_a_rank() -> None:
    part = importlib.import_module(
        "lucid_gpu.distributed.tensor._utils"
    ).compute_local_shape_and_global_offset
    shard, whole = lucid_gpu.distributed.tensor.Shard, lucid_gpu.distributed.tensor.Replicate
    mesh: Any = Mesh()
    assert part((5, 7), mesh, [shard(0), whole()]) == ((2, 7), (3, 0))
    assert part((5, 7), mesh, [shard(1), shard(0)]) == ((2, 3), (0, 4))
    assert part((5, 7), mesh, [shard(0), shard(0)]) == ((1, 7), (3, 0))
    assert part((5, 7), mesh, [whole(), whole()], True) == ((5, 7), ())


def test_names_that_transformers_imports() -> None:
    from lucid_gpu._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from lucid_gpu.distributed._composable.fsdp import fully_shard
    from lucid_gpu.distributed._functional_collectives import all_to_all_single_autograd
    from lucid_gpu.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    assert fully_shard is lucid_gpu.distributed.fsdp.fully_shard
    rows = lucid_gpu.arange(3.0)
    with TransformGetItemToIndex(), lucid_gpu.compiler.set_stance("force_eager"):
        assert lucid_gpu.vmap(lambda i: rows[i])(lucid_gpu.tensor([2, 0])).tolist() == [2.0, 0.0]
    with pytest.raises(NotImplementedError, match=r"HuggingFaceStorageWriter\('x'\): checkpoints"):
        HuggingFaceStorageWriter("x")
    assert callable(all_to_all_single_autograd)
    tree: Any = utils._pytree
    pairs, keys = tree._dict_flatten_with_keys({"a": 1})
    assert pairs == [(tree.MappingKey("a"), 1)] and keys == ["a"]


def test_models_made_for_quantization_run() -> None:
    quantization = lucid_gpu.ao.quantization
    x = lucid_gpu.tensor([[1.0, -2.0]])
    layer = nn.Linear(2, 2).eval()
    wrapped = quantization.QuantWrapper(layer)
    assert lucid_gpu.equal(wrapped(x), layer(x)) and not wrapped.training
    assert [name for name, _ in wrapped.named_parameters()] == ["module.weight", "module.bias"]
    assert quantization.QuantStub("by").qconfig == "by"


def test_sets_of_dispatch_keys() -> None:
    key, group = lucid_gpu._C.DispatchKey, lucid_gpu._C.DispatchKeySet
    both = group(key.AutocastCPU) | group(key.AutocastCUDA)
    assert both.has(key.AutocastCPU) and not both.has(key.CPU)
    assert (
        both - group(key.AutocastCPU) == group(key.AutocastCUDA) == both & group(key.AutocastCUDA)
    )


def test_futures_in_annotations() -> None:
    assert lucid_gpu.futures.Future[int].__args__ == (int,)


def test_what_vmap_gives_a_function_is_batched() -> None:
    is_batched = importlib.import_module("lucid_gpu._C._functorch").is_batchedtensor
    seen = []
    lucid_gpu.vmap(lambda x: seen.append(is_batched(x)) or x)(lucid_gpu.ones(2))
    assert seen == [True] and not is_batched(lucid_gpu.ones(2)) and not is_batched(1)


def test_batches_cut_and_joined() -> None:
    parts = importlib.import_module("lucid_gpu.nn.parallel.scatter_gather")
    x = lucid_gpu.arange(6.0).view(3, 2).requires_grad_()
    cut = parts.scatter(({"x": x, "n": 3}, [x, None]), ["cpu", "cpu"])
    assert [c[0]["x"].shape[0] for c in cut] == [2, 1] and [c[0]["n"] for c in cut] == [3, 3]
    joined = parts.gather([(c[0]["x"], c[1][0].sum(), Point(c[0]["x"], None)) for c in cut], "cpu")
    assert lucid_gpu.equal(joined[0], x) and joined[1].tolist() == [6.0, 9.0]
    assert isinstance(joined[2], Point) and lucid_gpu.equal(joined[2].x, x)
    joined[0].sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0]] * 3
    rows, named = parts.scatter_kwargs((), {"x": x}, ["cpu", "cpu"])
    assert rows == ((), ()) and [n["x"].shape[0] for n in named] == [2, 1]


def test_a_mode_that_would_see_the_dispatcher_is_not_entered() -> None:
    mode = importlib.import_module("lucid_gpu.utils._python_dispatch").TorchDispatchMode
    with pytest.raises(RuntimeError, match="__torch_dispatch__"), mode():
        pass
