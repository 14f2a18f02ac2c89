"""What is read of a tensor that ranks share, outside of its block: the whole, or a refusal.

All methods, attributes and functions that take a tensor are called with a whole tensor and with
one of which each rank holds rows; what they give is the same, or an error that says what to write.
"""

from __future__ import annotations

import copy
import inspect
import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.fsdp import FullyShardedDataParallel, fully_shard
from lucid_gpu.distributed.tensor import DTensor, distribute_tensor
from lucid_gpu.tape.overrides import is_overridable
from tests.distributed.processes import MPIEXEC, mpi, on_this_rank, one_rank, run
from tests.distributed.test_fully_sharded import close, made, perceptron

REFUSED = "each rank holds some rows of this tensor"
LEFT_OUT = {  # they wait for a file, another process or an argument that is none of these
    *("__class__", "__init__", "__new__", "__dict__", "__doc__", "__module__", "__weakref__"),
    *("backward", "module_load", "apply_", "map_", "map2_", "__array_priority__", "_grad_fn"),
    *(
        "is_leaf",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "__repr__",
        "record_stream",
    ),
}


def arguments(x: Any) -> Iterator[tuple[Any, ...]]:
    """What is tried: for most names one of these is right."""
    yield from ((), (0,), (2.5,), (0, 1), (1,), (x + 1,), (x[0] + 1,), (t.tensor([0, 2]),))
    yield from ((x.t() + 1,), (0, t.tensor([1, 0])), (x > 0, 3.0), (x + 1, x + 2), ((3, 4),))
    yield from (
        (0, t.tensor([1, 0]), 2.0),
        (0, t.tensor([[1, 0, 0]]), x + 1),
        ("fro",),
        (t.float64,),
    )
    yield from ((0, t.tensor([0, 1]), x[:2] + 1), (slice(1, 3),), (slice(1, 3), 7.0), (1, 0, 2))


def called(call: Any, x: Any, args: tuple[Any, ...]) -> Any:
    """What a call gives or raises, and what the tensor is afterwards."""
    t.manual_seed(4)
    np.random.seed(4)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(x, *args)
            if inspect.isgenerator(result) or hasattr(result, "__next__"):
                result = list(result)
    except Exception as error:
        result = error
    return result


SIMPLE = (bool, int, complex, str, t.dtype, t.device)


def alike(one: Any, other: Any) -> bool:
    if isinstance(other, DTensor):
        other = other.full_tensor()
    if isinstance(one, t.Tensor):
        if not isinstance(other, t.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        if one.layout is not t.strided:  # allclose takes no sparse tensors
            return one.layout is other.layout and alike(one.to_dense(), other.to_dense())
        return one.is_meta or t.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray):
        return np.allclose(one, other, equal_nan=True)
    if isinstance(one, float):
        return one == other or abs(one - other) < 1e-5 or one != one
    return type(one) is type(other) and (not isinstance(one, SIMPLE) or one == other)


def compare(name: str, call: Any, failures: list[str], tries: Any = None) -> int:
    """How many ways to call were right; what gives something else is noted."""
    t.manual_seed(3)
    whole = t.randn(3, 4).abs() + 0.1  # the ranks have 2 rows and 1
    count = 0
    for args in arguments(whole) if tries is None else tries:
        x, kept = whole.clone(), distribute_tensor(whole)
        expected = called(call, x, args)
        if isinstance(expected, Exception) or expected is NotImplemented:
            continue
        if name in _NEW and isinstance(expected, t.Tensor):  # memory that nobody has written
            expected.zero_()
        found = called(call, kept, args)
        if name in _NEW and isinstance(found, t.Tensor):
            found.zero_()
        count += 1
        if isinstance(found, Exception):
            if REFUSED not in str(found):
                failures.append(f"{name}{args}: {type(found).__name__}: {found}")
        elif not alike(expected, found):
            failures.append(f"{name}{args}: {found} for {expected}")
        elif not alike(x, kept) and tuple(x.shape) == (3, 4):
            failures.append(f"{name}{args} made it {kept.full_tensor()}, not {x}")
    return count


_NEW = ("new_empty", "empty_like", "new", "new_empty_strided")


def every_name() -> None:
    failures: list[str] = []
    right = 0
    with t.no_grad():
        for name in sorted(set(dir(t.Tensor)) - LEFT_OUT):
            if is_overridable(name) or name in ("__iter__", "__copy__", "__cuda_array_interface__"):
                if callable(getattr(t.Tensor, name)):
                    right += compare(name, lambda x, *a, n=name: getattr(x, n)(*a), failures)
                else:
                    right += compare(name, lambda x, n=name: getattr(x, n), failures, [()])
        spaces = (t, nn.functional, t.linalg, t.special, t.fft)
        for space in spaces:
            for name in sorted(n for n in dir(space) if n[0] != "_" and n not in NOT_CALLED):
                function = getattr(space, name)
                if inspect.isroutine(function):
                    right += compare(name, function, failures)
    assert not failures, f"{len(failures)} of {right + len(failures)}\n" + "\n".join(failures)
    assert right > 1200, right


_NOT_CALLED = """save load seed initial_seed manual_seed set_default_dtype set_default_device
    compile set_num_threads set_num_interop_threads set_printoptions from_file export set_rng_state
    use_deterministic_algorithms set_flush_denormal set_float32_matmul_precision typename
    set_deterministic_debug_mode set_warn_always install_as_torch get_device_module rand_like
    explain set_grad_enabled inference_mode record doctor empty_permuted has_torch_function
    has_torch_function_unary has_torch_function_variadic"""
NOT_CALLED = frozenset(_NOT_CALLED.split())


def by_other_doors() -> None:
    """NumPy, containers, files, other libraries' protocols, what looks into lists."""
    failures: list[str] = []
    calls = {
        "numpy.exp": lambda x: np.exp(x),
        "numpy.add": lambda x: np.add(x, 1.0),
        "numpy.sum": lambda x: np.sum(x),
        "numpy.linalg.norm": lambda x: np.linalg.norm(x),
        "numpy.asarray": lambda x: np.asarray(x),
        "array times": lambda x: np.ones((3, 4), np.float32) * x,
        "list": lambda x: [row.sum() for row in x],
        "stack": lambda x: t.stack([x, x]),
        "deeper": lambda x: t.cat([t.cat([x, x]), x]),
        "foreach": lambda x: t._foreach_norm([x, x]),
        "foreach in place": lambda x: t._foreach_mul_([x], 3.0),
        "tensor": lambda x: t.tensor(x),
        "as_tensor": lambda x: t.as_tensor(x),
        "asarray": lambda x: t.asarray(x),
        "new_tensor": lambda x: t.ones(2).new_tensor(x),
        "vector": lambda x: nn.utils.parameters_to_vector([x]),
        "to vector": lambda x: nn.utils.vector_to_parameters(t.arange(12.0), [x]),
        "Parameter": lambda x: nn.Parameter(x).detach(),
        "Buffer": lambda x: nn.Buffer(x),
        "deepcopy": lambda x: copy.deepcopy(x),
        "copy": lambda x: copy.copy(x),
        "linear": lambda x: nn.functional.linear(t.ones(2, 4), x),
        "embedding": lambda x: nn.functional.embedding(t.tensor([2, 0]), x),
        "vmap": lambda x: t.func.vmap(lambda row: row.sum())(x),
        "func.grad": lambda x: t.func.grad(lambda x: (x * x).sum())(x),
        "jvp": lambda x: t.func.jvp(lambda x: x.sin(), (x,), (t.ones(3, 4),)),
        "Function": lambda x: Twice.apply(x),
        "dlpack": lambda x: t.from_dlpack(x),
        "torch_dlpack": lambda x: x.__dlpack__(),
        "save": lambda x: t.save(x, io.BytesIO()),
        "save a dict": lambda x: t.save({"x": [x]}, io.BytesIO()),
        "checkpoint": lambda x: t.utils.checkpoint.checkpoint(t.sin, x, use_reentrant=False),
        "min": lambda x: min(x[0]),
        "in": lambda x: x[0, 0] in x,
        "set": lambda x: x.__setitem__((0, slice(None)), 5.0),
        "add to": lambda x: x.__iadd__(t.ones(4)),
        "out": lambda x: t.mul(t.ones(3, 4), 4.0, out=x),
        "normal_": lambda x: nn.init.normal_(x),
        "xavier": lambda x: nn.init.xavier_uniform_(x),
        "kaiming": lambda x: nn.init.kaiming_uniform_(x, a=5**0.5),
        "trunc": lambda x: nn.init.trunc_normal_(x),
        "orthogonal": lambda x: nn.init.orthogonal_(x),
        "data": lambda x: x.data.mul_(2.0),
        "detached": lambda x: x.detach().fill_(2.0),
        "part": lambda x: x[0].fill_(2.0),
        "view": lambda x: x.view(-1).add_(2.0),
        "turned": lambda x: x.t()[0].zero_(),
        "whole rows": lambda x: x.copy_(t.arange(12.0).view(3, 4)),
        "clip": lambda x: nn.utils.get_total_norm([x, x]),
    }
    for name, call in calls.items():
        for recording in (False, True):
            with t.set_grad_enabled(recording):
                compare(name, call, failures, [()])
    assert not failures, "\n".join(failures)


class Twice(t.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


class Tied(nn.Module):
    """Its last weights are those of a block that is sharded apart."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(4, 6)
        self.bias = nn.Parameter(t.arange(4.0))

    def forward(self, x: Any) -> Any:
        return t.tanh(self.block(x)) @ self.block.weight + self.bias


def penalized(model: Any, x: Any) -> Any:
    decay = sum((p**2).sum() for p in model.parameters())
    return model(x).square().mean() + 0.1 * decay + 0.01 * model.block.weight.norm()


def in_losses() -> None:
    """Tied weights, penalties, norms: values and gradients of one process on the big batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(2)
    x = t.randn(2 * size, 4)
    one = made(Tied)
    expected = penalized(one, x)
    expected.backward()
    copied = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("copies", "rows"))
    for reshards, mesh in ((True, None), (False, None), (True, copied)):
        many = made(Tied)
        fully_shard(many.block, reshard_after_forward=reshards, mesh=mesh)
        fully_shard(many, reshard_after_forward=reshards, mesh=mesh)
        for synced in (None, False, True):
            many.zero_grad()
            for last in (True,) if synced is None else (False, True):
                many.set_requires_gradient_sync(last)
                loss = penalized(many, x[2 * rank : 2 * rank + 2])
                loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            assert t.allclose(mean, expected.detach(), atol=1e-5)
            times = 1 if synced is None else 2
            close(
                [p.grad.full_tensor() for p in many.parameters()],
                [p.grad * times for p in one.parameters()],
            )
        for p, q in zip(many.parameters(), one.parameters()):
            assert p.shape == q.shape and p.numel() == q.numel() and len(p) == len(q)
            assert t.allclose(p.norm(), q.norm()) and t.allclose(p.mean(), q.mean())
            assert t.allclose(p.grad.norm(), times * q.grad.norm(), atol=1e-5)
    grads = t.autograd.grad(penalized(many, x[2 * rank : 2 * rank + 2]), [*many.parameters()])
    close([g.full_tensor() for g in grads], [q.grad for q in one.parameters()])


def second_derivatives() -> None:
    found = []
    for shards in (False, True):
        p = t.linspace(-1, 1, 15).view(5, 3)
        p = distribute_tensor(p) if shards else p
        p.requires_grad_()
        (g,) = t.autograd.grad((p**3).sum(), p, create_graph=True)
        ((g * g).sum() + g.norm()).backward()
        found.append([getattr(x, "full_tensor", x.detach)() for x in (g, p.grad)])
    close(*found)


def hooked() -> None:
    """Hooks are shown whole tensors, also those that were set before the parameters were shared."""
    seen: list[Any] = []
    layer = nn.Linear(3, 5)
    layer.weight.register_hook(lambda g: seen.append(g.shape))
    layer.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p))
    bias = fully_shard(layer).bias
    layer.bias.register_hook(lambda g: g * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
    layer(t.ones(2, 3)).sum().backward()
    assert [s for s in seen if s is not bias] == [(5, 3), (5, 3)] and len(seen) == 3
    assert t.equal(layer.bias.grad.full_tensor(), t.full((5,), 4.0))


def own_optimizer() -> None:
    """One written with tensors, `reset_parameters` and conversions, as of whole parameters."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(1)
    x = t.randn(2 * size, 3)
    found = []
    for shards in (False, True):
        model = made(perceptron)
        if shards:
            fully_shard(model)
        t.manual_seed(5)
        for layer in model:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        state: dict[Any, Any] = {}
        for _ in range(3):
            model.zero_grad(set_to_none=False)
            model(x[2 * rank : 2 * rank + 2] if shards else x).square().mean().backward()
            with t.no_grad():
                for p in model.parameters():
                    m = state.setdefault(p, t.zeros_like(p))
                    m.mul_(0.9).add_(p.grad, alpha=0.1)
                    p.addcdiv_(m, p.grad.abs() + 1, value=-0.1)
                    p.data -= 0.01 * p.data / p.data.norm()
        model.double().float()
        found.append([getattr(p, "full_tensor", p.detach)().detach() for p in model.parameters()])
        assert not shards or all(isinstance(m, DTensor) for m in state.values())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        found.append([norm, *(getattr(p.grad, "full_tensor", p.grad.detach)() for p in state)])
    close(found[2], found[0])
    close(found[3], found[1])


def copies_stay_equal() -> None:
    """Random numbers are written alike, whatever the seeds of ranks."""
    size = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("copies", "rows"))
    model = fully_shard(made(perceptron), mesh=mesh)
    t.manual_seed(dist.get_rank())
    model[0].reset_parameters()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, model[0].weight.to_local().tolist())
    assert all(other == every[0] for other in every)


def whole_values_are_loaded() -> None:
    given = made(perceptron).state_dict()
    for shard in (fully_shard, FullyShardedDataParallel):
        t.manual_seed(9)
        model = shard(perceptron())
        model.load_state_dict(given)
        close([p.full_tensor() for p in model.parameters()], [*given.values()], 0.0)
    with pytest.raises(RuntimeError, match=r"size mismatch.*\[40, 3\]"):
        fully_shard(perceptron()).load_state_dict({**given, "0.weight": t.ones(20, 3)})


def test_programs_without_such_tensors_ask_nobody() -> None:
    code = (
        "import lucid_gpu.distributed.fsdp as f, lucid_gpu.distributed.tensor; f.fully_shard\n"
        "from lucid_gpu.tape.overrides import handling; assert not handling"
    )
    run([sys.executable, "-c", code])


PARTS = {
    f.__name__: f
    for f in (
        every_name,
        by_other_doors,
        in_losses,
        second_derivatives,
        hooked,
        own_optimizer,
        copies_stay_equal,
        whole_values_are_loaded,
    )
}


OTHERS = tuple([*PARTS][1:])
RUNS = [
    (2, OTHERS),
    pytest.param(2, ("every_name",), marks=pytest.mark.slow),
    pytest.param(3, OTHERS, marks=pytest.mark.slow),
]


@mpi
@pytest.mark.parametrize(("size", "parts"), RUNS)
def test_several_ranks(size: int, parts: tuple[str, ...]) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__, *parts])


@pytest.mark.parametrize("part", OTHERS)  # one rank's rows are the whole
def test_one_rank(part: str, tmp_path: Path) -> None:
    with one_rank(tmp_path):
        PARTS[part]()


if __name__ == "__main__":
    on_this_rank([PARTS[name] for name in sys.argv[1:]] or PARTS.values())
