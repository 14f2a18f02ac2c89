"""Modules of PyTorch that packages import: what they answer, do, and refuse."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import io
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, List, Optional  # noqa: UP035 - as TorchScript's users write them

import pytest

import lucid_gpu
from lucid_gpu import nn, utils
from lucid_gpu.devices import blas
from lucid_gpu.func import trees
from tests.oracle import torch_module

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
        lucid_gpu._dynamo.allow_in_graph, lucid_gpu._dynamo.optimize("eager"),
        importlib.import_module("lucid_gpu.onnx.symbolic_helper").parse_args("v", "f"),
    ],
)  # fmt: skip
def test_decorators_give_back_what_they_got(decorate: Callable[..., Any]) -> None:
    assert decorate(add_one) is add_one


def test_settings_of_a_compiler_are_kept() -> None:
    from lucid_gpu._dynamo import config
    from lucid_gpu._inductor import config as inductor

    for module in (config, inductor):
        assert importlib.import_module(module.__name__) is module
    before = config.cache_size_limit
    config.cache_size_limit = 64
    assert lucid_gpu._dynamo.config.cache_size_limit == 64
    config.cache_size_limit = before
    assert inductor.triton.unique_kernel_names and not inductor.coordinate_descent_tuning


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
        lambda: importlib.import_module("lucid_gpu.fx.experimental.proxy_tensor").make_fx(add_one),
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
    defaultdict(list, a=[1], b=(2, 3)),
    Counter("aab"),  # a leaf: no container that was registered
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


@dataclasses.dataclass
class Settings:
    rates: list[float]
    name: str | None = None


def test_paths_through_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = utils._pytree
    monkeypatch.setattr(trees, "REGISTERED", {**trees.REGISTERED})
    monkeypatch.setattr(tree, "_WITH_KEYS", {**tree._WITH_KEYS})
    tree.register_dataclass(Settings)
    data = {"a": [1, Point(2, 3)], 7: Settings([4.0])}
    found = {tree.keystr(path): leaf for path, leaf in tree.tree_leaves_with_path(data)}
    expected = {"['a'][0]": 1, "['a'][1].x": 2, "['a'][1].y": 3, "[7].rates[0]": 4.0}
    assert found == expected
    paths = [path for path, _ in tree.tree_flatten_with_path(data)[0]]
    assert [tree.key_get(data, path) for path in paths] == list(expected.values())
    assert tree.tree_map(lambda x: -x, data[7]) == Settings([-4.0])
    spec = tree.treespec_dict(a=tree.treespec_tuple([tree.treespec_leaf()] * 2))
    assert spec == tree.tree_structure({"a": (1, 2)})
    assert tree.is_namedtuple(Point) and tree.is_namedtuple(Point(1, 2))
    with pytest.raises(ValueError, match="field_names must be specified"):
        tree.register_dataclass(Pair)


def test_an_error_of_another_thread() -> None:
    wrapper = importlib.import_module("lucid_gpu._utils").ExceptionWrapper
    try:
        {}["key"]
    except KeyError:
        caught = wrapper(where="in replica 0")
    with pytest.raises(KeyError, match="Caught KeyError in replica 0") as error:
        caught.reraise()
    assert "Traceback" in str(error.value)


def test_where_storages_are_restored() -> None:
    restore = lucid_gpu.serialization.default_restore_location
    file = io.BytesIO()
    lucid_gpu.save({"x": lucid_gpu.ones(2)}, file)
    file.seek(0)
    loaded = lucid_gpu.load(file, map_location=lambda s, place: restore(s, "cpu"))
    assert loaded["x"].tolist() == [1, 1]
    assert lucid_gpu.serialization.location_tag(loaded["x"].untyped_storage()) == "cpu"
    with pytest.raises(RuntimeError, match="nowhere"):
        restore(loaded["x"], "nowhere")


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
    with lucid_gpu.backends.mkl.verbose(lucid_gpu.backends.mkl.VERBOSE_ON):
        assert lucid_gpu.backends.mkl.is_available() is (blas.mkl is not None)
    assert lucid_gpu.backends.quantized.engine in lucid_gpu.backends.quantized.supported_engines
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

    from lucid_gpu.distributed import rpc
    from lucid_gpu.fx.node import Node

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


def test_dictionaries_with_weak_keys_compare_by_identity() -> None:
    weak: Any = importlib.import_module("lucid_gpu.utils.weak")
    a, b = lucid_gpu.ones(2), lucid_gpu.ones(2)
    d = weak.WeakTensorKeyDictionary({a: 1, b: 2})
    assert (d[a], d[b], len(d), a in d, lucid_gpu.ones(2) in d) == (1, 2, 2, True, False)
    assert {**(d | {b: 3})}[b] == 3 and [ref() is k for ref, k in zip(d.keyrefs(), d)] == [True] * 2
    assert d.copy().popitem()[0] is b and len(d) == 2
    reference = weak.TensorWeakRef(b)
    assert reference() is b
    del b
    assert (len(d), list(d.values()), reference()) == (1, [1], None)
    del d[a]
    with pytest.raises(KeyError):
        d[a]


def test_context_managers_that_decorate_are_derived() -> None:
    base: Any = importlib.import_module("lucid_gpu.utils._contextlib")._DecoratorContextManager
    calls: list[str] = []

    class Named(base):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        def clone(self) -> Named:
            return Named(self.name)

        def __enter__(self) -> None:
            calls.append(f"in {self.name}")

        def __exit__(self, *_: object) -> None:
            calls.append(f"out {self.name}")

    @Named("a")
    def generate() -> Any:
        calls.append("first")
        yield 1
        calls.append("last")

    assert Named("b")(add_one)(1) == 2
    assert list(generate()) == [1]
    assert calls == ["in b", "out b", "in a", "first", "out a", "in a", "last", "out a"]


@pytest.mark.parametrize("base_seed", [0, 5, 2**31, 2**40 + 7, 2**63 - 1])
def test_workers_seed_numpy_as_pytorch(base_seed: int) -> None:
    ours: Any = importlib.import_module("lucid_gpu.utils.data._utils.worker")
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    theirs = torch.utils.data._utils.worker
    for worker in (0, 1, 7):
        assert ours._generate_state(base_seed, worker) == theirs._generate_state(base_seed, worker)


def test_lists_and_named_fields_as_trees() -> None:
    import os

    trees: Any = importlib.import_module("lucid_gpu.utils._pytree")
    assert trees._list_unflatten(*trees._list_flatten([1, 2])) == [1, 2]
    assert [key.idx for key, _ in trees._list_flatten_with_keys("ab")[0]] == [0, 1]
    Pair = namedtuple("Pair", "a b")
    assert [trees.is_namedtuple_instance(x) for x in (Pair(1, 2), (1, 2), Pair)] == [
        True,
        False,
        False,
    ]
    assert [trees.is_structseq_instance(x) for x in (os.stat("."), (1, 2))] == [True, False]


def test_quantized_types_are_names_only() -> None:
    assert str(lucid_gpu.quint8) == "lucid_gpu.quint8"
    with pytest.raises(TypeError, match="no tensor has this type"):
        lucid_gpu.zeros(2, dtype=lucid_gpu.qint32)


def test_modules_of_types_of_devices() -> None:
    inner: Any = importlib.import_module("lucid_gpu._utils")
    assert inner._get_device_module("cuda") is lucid_gpu.cuda
    with pytest.raises(RuntimeError, match="'foo' does not have a corresponding module"):
        inner._get_device_module("foo")


def test_the_first_vmap_lets_none_pass() -> None:
    inner: Any = lucid_gpu._vmap_internals
    x = lucid_gpu.arange(6.0).reshape(2, 3)
    total, nothing = inner._vmap(lambda t: (t.sum(), None), 0, 0, True)(x)
    assert total.tolist() == [3.0, 12.0] and nothing is None
    assert inner._vmap(lambda t: None, 0, 0, True)(x) is None
    with pytest.raises(ValueError, match="must only return Tensors"):
        inner._vmap(lambda t: None)(x)
    with pytest.warns(FutureWarning, match="torch.vmap"):
        assert inner.vmap(lambda t: t * 2, 1, 1)(x).tolist() == (x * 2).tolist()


def test_annotations_of_a_loss_are_evaluated_anywhere() -> None:
    from typing import get_type_hints

    # fastai does so, with the names of its own module
    assert get_type_hints(nn.CrossEntropyLoss(), globalns={})
    assert importlib.import_module("lucid_gpu.nn.modules.activation").MultiheadAttention


def test_a_module_says_how_it_is_called() -> None:
    class Other(nn.Linear):
        def _get_name(self) -> str:
            return f"Own{super()._get_name()}"

    assert repr(Other(1, 2)) == "OwnOther(in_features=1, out_features=2, bias=True)"


@pytest.mark.parametrize("place", ["weight", "running_mean", "extra"])
def test_swap_tensor(place: str) -> None:
    swap = importlib.import_module("lucid_gpu.nn.utils._named_member_accessor").swap_tensor
    module, new = nn.BatchNorm1d(2), nn.Parameter(lucid_gpu.ones(2))
    module.extra = lucid_gpu.zeros(2)
    old = getattr(module, place)
    assert swap(module, place, new) is old and getattr(module, place) is new
    with pytest.raises(AttributeError, match="BatchNorm1d has no attribute `other`"):
        swap(module, "other", new)
    with pytest.raises(KeyError, match="contain"):
        swap(module, "a.b", new)
    with pytest.raises(TypeError, match="is not an instance of torch.Tensor"):
        swap(module, place, 3)
    with pytest.raises(TypeError, match="attribute `eps`"):
        swap(module, "eps", new)
    assert getattr(module, place) is new


def test_hooks_of_all_modules_are_seen_in_pytorchs_tables() -> None:
    inner: Any = importlib.import_module("lucid_gpu.nn.modules.module")
    table = inner._global_parameter_registration_hooks
    assert not table
    handle = inner.register_module_parameter_registration_hook(add_one)
    assert list(table.values()) == [add_one] and not inner._global_buffer_registration_hooks
    handle.remove()
    assert not table


@pytest.mark.parametrize("seed", range(40))
def test_prefixes_of_trees_as_pytorch_broadcasts_them(seed: int) -> None:
    import random

    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    chance, ours = random.Random(seed), importlib.import_module("lucid_gpu.utils._pytree")
    Pair = namedtuple("Pair", "a b")

    def tree(depth: int) -> Any:
        parts = [tree(depth - 1) for _ in range(chance.randrange(3))] if depth else []
        made = [tuple(parts), parts, dict(zip("ab", parts)), Pair(1, parts), 5]
        return chance.choice(made if depth else [5])

    def prefix(t: Any) -> Any:
        if chance.random() < 0.25:
            return chance.choice([7, None, [3]])
        if isinstance(t, dict):
            return {k: prefix(v) for k, v in t.items()}
        if isinstance(t, Pair):
            return Pair(*map(prefix, t))
        return type(t)(map(prefix, t)) if isinstance(t, (list, tuple)) else t

    for _ in range(20):
        whole = tree(3)
        part = prefix(whole)
        theirs = torch.utils._pytree
        expected = theirs._broadcast_to_and_flatten(part, theirs.tree_flatten(whole)[1])
        assert ours._broadcast_to_and_flatten(part, ours.tree_flatten(whole)[1]) == expected


def test_sizes_that_nobody_leaves_open() -> None:
    assert not isinstance(3, lucid_gpu.SymInt) and lucid_gpu.types.SymInt is lucid_gpu.SymInt
    assert lucid_gpu.sym_int(2.7) == 2 and lucid_gpu.sym_float(2) == 2.0
    larger = lucid_gpu.sym_max(2, 1.5)
    assert (larger, type(larger)) == (2.0, float) and lucid_gpu.sym_min(2, 3) == 2
    assert lucid_gpu.sym_sum([1, 2]) == 3 and lucid_gpu.sym_ite(False, 1, 2) == 2
    assert lucid_gpu.sym_not(False) is True
    with pytest.raises(TypeError, match="nothing is traced"):
        lucid_gpu.SymInt(3)


def test_devices_that_there_are_not() -> None:
    for module in (lucid_gpu.mps, lucid_gpu.xpu):
        assert not module.is_available() and module.device_count() == 0
        module.manual_seed(0)
    assert lucid_gpu.get_device_module("cpu") is lucid_gpu.cpu
    with pytest.raises(OSError, match=r"needs PyTorch's C\+\+ library"):
        lucid_gpu.classes.load_library("x.so")


def test_names_of_types_as_pytorch_says_them() -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    for thing in (1, int, len, [], OrderedDict, add_one, None):
        assert lucid_gpu.typename(thing) == torch.typename(thing)
    assert lucid_gpu.typename(lucid_gpu.ones(1)) == lucid_gpu.ones(1).type()
    assert lucid_gpu.typename(nn.Linear(1, 1)) == "lucid_gpu.nn.modules.linear.Linear"
    shape = importlib.import_module("lucid_gpu._C")._shape_as_tensor(lucid_gpu.ones(2, 3))
    assert shape.tolist() == [2, 3] and shape.dtype is lucid_gpu.int64


def test_vmap_is_seen_from_inside() -> None:
    inner: Any = importlib.import_module("lucid_gpu._C")
    seen = []

    def look(x: Any) -> Any:
        seen.append(inner._are_functorch_transforms_active())
        return x * 2

    lucid_gpu.vmap(look)(lucid_gpu.ones(2))
    assert seen == [True] and not inner._are_functorch_transforms_active()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_own_checks_of_the_inputs_of_batch_norms(rank: int) -> None:
    class Any4(getattr(nn, f"BatchNorm{rank}d")):
        def _check_input_dim(self, input: Any) -> None:
            assert input.ndim > 1

    x = lucid_gpu.randn(3, 2, 2, 2, 2, 2)
    expected = nn.functional.batch_norm(x, None, None, training=True)
    assert lucid_gpu.allclose(Any4(2)(x), expected)

    class Own(importlib.import_module("lucid_gpu.nn.modules.batchnorm")._BatchNorm):
        def _check_input_dim(self, input: Any) -> None:
            pass

    assert lucid_gpu.allclose(Own(2)(x), expected)


def test_own_padding_of_the_results_of_transposed_convolutions() -> None:
    class Longer(nn.ConvTranspose1d):
        def forward(self, input: Any, output_size: Any = None) -> Any:
            more = self._output_padding(
                input, output_size, self.stride, self.padding, self.kernel_size, 1, self.dilation
            )
            return nn.functional.conv_transpose1d(
                input, self.weight, self.bias, self.stride, self.padding, more
            )

    layer, x = Longer(1, 1, 3, stride=3), lucid_gpu.randn(2, 1, 4)
    assert [layer(x, [n]).shape[-1] for n in (12, 13, 14)] == [12, 13, 14]
    assert layer(x).shape[-1] == 12
    with pytest.raises(ValueError, match="valid sizes range from"):
        layer(x, [15])


@pytest.mark.parametrize("seed", range(12))
def test_parts_of_attention_as_pytorch_computes_them(seed: int) -> None:
    import numpy as np

    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    chance = np.random.default_rng(seed)
    arrays = [chance.standard_normal((2, 3, 4)) for _ in range(3)]
    same = seed % 3 == 0, seed % 3 == 1
    weight, bias = chance.standard_normal((12, 4)), chance.standard_normal(12)
    results = []
    for m in (lucid_gpu, torch):
        q, k, v = map(m.from_numpy, arrays)
        k, v = (q, q) if same[0] else (k, k if same[1] else v)
        w, b = m.from_numpy(weight).requires_grad_(), m.from_numpy(bias)
        inside: Any = m.nn.functional
        parts = inside._in_projection_packed(q, k, v, w, b if seed % 2 else None)
        assert all(part.view(6, 4).is_contiguous() for part in parts)
        sum(part.sin().sum() * (i + 1) for i, part in enumerate(parts)).backward()
        mask = m.from_numpy(arrays[0] > 0)
        added = inside._canonical_mask(mask, "mask", None, "", m.float64)
        results.append([*(p.detach().numpy() for p in parts), w.grad.numpy(), added.numpy()])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_what_parts_of_functional_refuse() -> None:
    inside: Any = nn.functional
    with pytest.raises(RuntimeError, match="only bool and floating types of mask are supported"):
        inside._canonical_mask(lucid_gpu.ones(2, dtype=int), "mask", None, "", lucid_gpu.float32)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        inside._verify_batch_size((1, 5, 1))
    inside._verify_batch_size((2, 5, 1))
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert inside._get_softmax_dim("softmax", 3, 2) == 0


def test_an_optimizer_written_after_pytorchs() -> None:
    inner: Any = importlib.import_module("lucid_gpu.optim.optimizer")

    class Plain(lucid_gpu.optim.Optimizer):
        def __init__(self, params: Any, differentiable: bool) -> None:
            super().__init__(params, {"lr": 0.5, "differentiable": differentiable})

        @inner._use_grad_for_differentiable
        def step(self, closure: Any = None) -> None:
            self._cuda_graph_capture_health_check()
            self.recorded = lucid_gpu.is_grad_enabled()
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-inner._get_value(lucid_gpu.tensor(group["lr"])))

    for differentiable in (False, True):
        p = lucid_gpu.ones(2, requires_grad=True)
        p.sum().backward()
        optimizer = Plain([p], differentiable)
        optimizer.step()
        assert optimizer.recorded == differentiable and p.tolist() == [0.5, 0.5]
    z = [lucid_gpu.ones(2, dtype=lucid_gpu.complex64)]
    inner._view_as_real(z)
    assert z[0].shape == (2, 2) and inner._default_to_fused_or_foreach(z, False) == (False, False)
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        inner._device_dtype_check_for_fused(lucid_gpu.ones(1, dtype=int))
    assert inner._get_scalar_dtype() is lucid_gpu.float32 and inner.ParamsT
    assert inner._to_scalar(lucid_gpu.ones(1)).ndim == 0


@pytest.mark.parametrize(
    "path",
    [
        "nn.modules.batchnorm.SyncBatchNorm", "nn.modules.batchnorm.LazyBatchNorm2d",
        "nn.modules.conv.LazyConvTranspose3d", "nn.modules.instancenorm.LazyInstanceNorm1d",
        "nn.modules.linear.LazyLinear", "nn.modules.loss.LinearCrossEntropyLoss",
        "nn.modules.conv._pair", "nn.modules.pooling._triple", "nn.modules.padding._quadruple",
        "nn.modules.transformer._get_clones", "nn.modules.module._addindent",
        "nn.init._no_grad_trunc_normal_", "optim.adamw.AdamW",
        "distributions.multivariate_normal._batch_mv", "backends.cuda.sdp_kernel",
        "compiler.cudagraph_mark_step_begin", "cuda.amp.grad_scaler.GradScaler",
        "cuda.amp.autocast_mode.custom_fwd", "nn.utils.weight_norm.weight_norm",
        "nn.utils.spectral_norm.SpectralNorm", "optim.lr_scheduler._enable_get_lr_call",
        "nn.parallel.scatter_gather.is_namedtuple", "serialization.SourceChangeWarning",
        "utils.checkpoint.check_backward_validity",
        "nn.functional._Reduction.get_enum", "_C._LinAlgError", "jit.RecursiveScriptModule",
        "mps.empty_cache", "mps.driver_allocated_memory", "cuda.get_arch_list",
        "distributed.fsdp.api.StateDictSettings",
    ],
)  # fmt: skip
def test_names_stand_where_packages_look_for_them(path: str) -> None:
    module, *names = re.split(r"\.(?=[^.]*$|_Reduction)", path)
    found: Any = importlib.import_module(f"lucid_gpu.{module}")
    assert callable(functools.reduce(getattr, names, found))


def test_older_names_of_memory_warn_and_answer() -> None:
    cuda = lucid_gpu.cuda
    with pytest.warns(FutureWarning, match="renamed to lucid_gpu.cuda.memory_reserved"):
        assert cuda.memory_cached() == cuda.memory_reserved()
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert cuda.max_memory_cached() == cuda.max_memory_reserved()
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        cuda.reset_max_memory_cached()
    assert lucid_gpu.distributed.GroupMember.WORLD is lucid_gpu.distributed.group.WORLD


def test_kernels_of_attention_by_the_first_name() -> None:
    cuda = lucid_gpu.backends.cuda
    with cuda.sdp_kernel(enable_math=False, enable_cudnn=False):
        assert not cuda.math_sdp_enabled() and cuda.flash_sdp_enabled()
    assert cuda.math_sdp_enabled()


def test_results_of_a_subclass() -> None:
    class Own(lucid_gpu.Tensor):
        pass

    convert: Any = importlib.import_module("lucid_gpu._tensor")._convert
    x = lucid_gpu.ones(2)
    (a, (b, c)) = convert([x, (x, 3)], Own)
    assert type(a) is type(b) is Own and c == 3 and convert(x, lucid_gpu.Tensor) is x


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_first_names_of_autocasts_types(kind: str) -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated. Please use torch.get_autocast"):
        found = getattr(lucid_gpu, f"get_autocast_{kind}_dtype")()
    assert found is lucid_gpu.get_autocast_dtype("cuda" if kind == "gpu" else "cpu")
    with pytest.warns(DeprecationWarning, match="is_autocast_enabled"):
        assert not lucid_gpu.is_autocast_cpu_enabled()


def test_gradients_through_remote_calls_are_refused() -> None:
    remote: Any = importlib.import_module("lucid_gpu.distributed.autograd")
    assert not remote.is_available()
    with pytest.raises(NotImplementedError, match="there are no remote calls"):
        remote.context()


def test_names_of_activations_are_each_the_name_of_one_class() -> None:
    inner: Any = vars(importlib.import_module("lucid_gpu.nn.modules.activation"))
    kinds = [kind for kind in inner.values() if isinstance(kind, type)]  # class_resolver does so
    names = [kind.__name__ for kind in kinds if issubclass(kind, nn.Module)]
    assert len(set(names)) == len(names)


def test_reduction_by_number_and_by_older_flags() -> None:
    def scenario(m: Any) -> Any:
        R = importlib.import_module(f"{m.__name__}.nn._reduction")
        with pytest.warns(UserWarning, match="reduction='sum'"):
            old = R.legacy_get_enum(False, None)
        return [R.get_enum(name) for name in ("none", "mean", "sum")] + [old]

    assert scenario(lucid_gpu) == scenario(torch_module()) == [0, 1, 2, 2]
    for m in (lucid_gpu, torch_module()):
        with pytest.raises(ValueError, match="average is not a valid value for reduction"):
            importlib.import_module(f"{m.__name__}.nn._reduction").get_enum("average")


def test_names_of_activations_differ_by_more_than_underscores() -> None:
    found = [v for v in vars(nn.modules.activation).values() if isinstance(v, type)]
    classes = {kind for kind in found if issubclass(kind, nn.Module)}
    names = [kind.__name__.strip("_").lower() for kind in classes]
    assert len(names) == len(set(names))  # resolvers of classes by name refuse two of one


@pytest.mark.parametrize("name", ["Subset", "ConcatDataset", "StackDataset", "ChainDataset"])
def test_datasets_are_generic(name: str) -> None:
    for m in (lucid_gpu, torch_module()):
        assert getattr(importlib.import_module(f"{m.__name__}.utils.data"), name)[int].__args__


def test_names_that_heavyball_speechbrain_and_hypll_import() -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    with lucid_gpu._dynamo.utils.disable_cache_limit():
        pass
    pin: Any = importlib.import_module("lucid_gpu.utils.data._utils.pin_memory")
    assert pin.pin_memory([1, "a"]) == [1, "a"]
    for m in (lucid_gpu, torch):
        x = m.ones(2)
        kinds = (x.double(), m.nn.Parameter(x), x.to_sparse(), x.to("meta"))
        same = [m._has_compatible_shallow_copy_type(x, kind) for kind in kinds]
        assert same == [True, True, False, False]


def test_the_older_names_of_mixed_precision_on_the_host() -> None:
    amp = importlib.import_module("lucid_gpu.cpu.amp")
    with pytest.warns(
        FutureWarning, match=r"`lucid_gpu.cpu.amp.autocast\(args...\)` is deprecated"
    ):
        region = amp.autocast()
    with region:
        assert (lucid_gpu.ones(2, 2) @ lucid_gpu.ones(2, 2)).dtype is lucid_gpu.bfloat16
    with pytest.warns(FutureWarning, match="GradScaler"):
        scaler = amp.GradScaler(init_scale=2.0)
    assert scaler.scale(lucid_gpu.ones(1)).item() == 2


def test_distributions_list_pytorch_s_names() -> None:
    assert set(lucid_gpu.distributions.__all__) == set(torch_module().distributions.__all__)


@pytest.mark.parametrize("positional", [False, True])
def test_pools_that_always_say_where_the_largest_are(positional: bool) -> None:
    def run(m: Any) -> Any:
        f, x = m.nn.functional, m.arange(24.0).reshape(1, 2, 3, 4)
        settings = (2, None, 0, 1, False, False) if positional else (2,)
        found = [f.max_pool2d_with_indices(x, *settings), f.max_pool1d_with_indices(x[0], 2)]
        found += [f.max_pool3d_with_indices(x[None], (1, 2, 2))]
        found += [f.adaptive_max_pool2d_with_indices(x, 2)]
        found += [f.adaptive_max_pool1d_with_indices(x[0], 2, return_indices=False)]
        found += [f.adaptive_max_pool3d_with_indices(x[None], (1, 2, 2))]
        for n, images in ((2, x), (3, m.arange(27.0).reshape(1, 1, 3, 3, 3))):
            share = m.full((1, images.shape[1], n), 0.5)
            pool = getattr(f, f"fractional_max_pool{n}d_with_indices")
            found.append(pool(images, 1, 2, _random_samples=share))
        return [(values.tolist(), places.tolist()) for values, places in found]

    assert run(lucid_gpu) == run(torch_module())


def test_what_is_cut_for_devices_and_joined() -> None:
    from lucid_gpu.cuda import comm

    x = lucid_gpu.arange(12.0).reshape(6, 2)
    parts = comm.scatter(x, [-1, -1], chunk_sizes=[2, 4])
    assert [tuple(p.shape) for p in parts] == [(2, 2), (4, 2)]
    assert comm.gather(parts, destination=-1).tolist() == x.tolist()
    assert comm.reduce_add([x, x], -1).tolist() == (2 * x).tolist()
    assert [len(row) for row in comm.broadcast_coalesced([x, x], [-1])] == [2]


def test_a_parameter_that_refuses_ops_can_be_made() -> None:
    class Point(nn.Parameter):
        def __new__(cls, value: Any) -> Any:
            return super().__new__(cls)

        def __init__(self, value: Any) -> None:
            self.value = value

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.__class__.__name__ == "method-wrapper":  # attributes, as in PyTorch
                return "an attribute"
            raise TypeError("an op")

    point: Any = Point(3)
    assert isinstance(point, nn.Parameter) and point.value == 3
    assert point.shape == "an attribute"
    with pytest.raises(TypeError, match="an op"):
        lucid_gpu.exp(point)


def test_tree_map_takes_the_keys_of_dictionaries_in_any_order() -> None:
    from lucid_gpu.utils._pytree import tree_map

    for kind in (dict, OrderedDict):
        paired = tree_map(lambda x, y: (x, y), {"a": 1, "b": [2]}, kind(b=[20], a=10))
        assert paired == {"a": (1, 10), "b": [(2, 20)]}
    with pytest.raises(ValueError, match="is not of the structure"):
        tree_map(lambda x, y: x, {"a": 1, "b": 2}, {"a": 1, "c": 2})
