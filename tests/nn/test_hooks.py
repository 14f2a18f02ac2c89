"""Hooks of modules and of all modules: what they see and what they change is PyTorch's."""

import copy
import pickle
import warnings
import weakref

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import modules, plain, same_error


def both(scenario, device="cpu"):
    """What a scenario gives here; with PyTorch it must be the same."""
    found = [plain(scenario(m, where)) for m, where in modules(device)]
    for other in found[1:]:
        assert other == found[0]
    return found[0]


def layer(m, device="cpu", out=2):
    made = m.nn.Linear(3, out, bias=False).to(device)
    with m.no_grad():
        made.weight.copy_(m.arange(3.0 * out).reshape(out, 3))
    return made


def test_backward_hooks_see_and_change_gradients(device):
    def run(m, where):
        seen, net = [], layer(m, where)
        net.register_full_backward_pre_hook(lambda mod, g: (g[0] * 2,))
        net.register_full_backward_hook(
            lambda mod, gin, gout: seen.append((gin, gout)) or (gin[0] + 1,)
        )
        x = m.ones(1, 3).to(where).requires_grad_()
        net(x).sum().backward()
        return seen, x.grad, net.weight.grad

    seen, grad, weight = both(run, device)
    assert seen == [[[[[6.0, 10.0, 14.0]]], [[[2.0, 2.0]]]]]
    assert grad == [[7.0, 11.0, 15.0]]
    assert weight == [[2.0] * 3] * 2


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_backward_hooks_where_no_input_has_a_gradient():
    def run(m, where):
        seen, net = [], layer(m)
        net.register_full_backward_hook(lambda mod, gin, gout: seen.append((gin, gout)))
        net(m.ones(1, 3)).sum().backward()
        with m.no_grad():
            net(m.ones(1, 3))
        return seen

    assert both(run) == [[[None], [[[1.0, 1.0]]]]]


def test_backward_hooks_of_several_inputs_and_outputs():
    def run(m, where):
        class Two(m.nn.Module):
            def forward(self, a, n, b):
                return a * b, n, b.detach()

        seen, net = [], Two()
        net.register_full_backward_hook(lambda mod, gin, gout: seen.append((gin, gout)))
        handle = net.register_full_backward_hook(lambda *_: seen.append("first"), prepend=True)
        a, b = (m.full((2,), v, requires_grad=True) for v in (2.0, 3.0))
        net(a, 7, b)[0].sum().backward()
        handle.remove()
        net(a, 7, b)[0].sum().backward()
        return seen

    seen = both(run)
    assert seen[0] == "first"
    assert len(seen) == 3
    assert seen[1][0] == [[3.0, 3.0], None, [2.0, 2.0]]


@pytest.mark.parametrize(
    ("which", "answer", "words"),
    [
        (
            "register_full_backward_hook",
            (None, None),
            "grad_input, got 2, but expected 1",
        ),
        (
            "register_full_backward_pre_hook",
            (None,) * 3,
            "grad_output, got 3, but expected 1",
        ),
    ],
)
def test_backward_hooks_answer_as_many(which, answer, words):
    def run(m):
        net = layer(m)
        getattr(net, which)(lambda *_: answer)
        net(m.ones(1, 3, requires_grad=True)).sum().backward()

    same_error(run, words)


def test_hooks_of_all_modules():
    def run(m, where):
        seen, everywhere = [], m.nn.modules.module
        handles = [
            everywhere.register_module_forward_pre_hook(
                lambda mod, args: seen.append(("pre", type(mod).__name__))
            ),
            everywhere.register_module_forward_hook(
                lambda mod, args, out: seen.append(("post", type(mod).__name__))
            ),
            everywhere.register_module_full_backward_pre_hook(
                lambda mod, g: seen.append(("arrives", type(mod).__name__))
            ),
            everywhere.register_module_full_backward_hook(
                lambda mod, gin, g: seen.append(("passed", type(mod).__name__))
            ),
        ]
        net = m.nn.Sequential(layer(m), m.nn.ReLU())
        net(m.ones(1, 3, requires_grad=True)).sum().backward()
        for handle in handles:
            handle.remove()
        net(m.ones(1, 3, requires_grad=True)).sum().backward()
        return seen

    assert len(both(run)) == 12


def test_hooks_of_registrations():
    def run(m, where):
        seen, everywhere = [], m.nn.modules.module
        with (
            everywhere.register_module_parameter_registration_hook(
                lambda mod, name, p: seen.append((name, p is None))
            ),
            everywhere.register_module_buffer_registration_hook(
                lambda mod, name, b: seen.append((name, b is None))
            ),
            everywhere.register_module_module_registration_hook(
                lambda mod, name, child: seen.append((name, type(child).__name__))
            ),
        ):
            m.nn.Sequential(m.nn.BatchNorm1d(2, affine=False), m.nn.Linear(2, 2, bias=False))
        return seen

    assert ["0", "BatchNorm1d"] in both(run)


def test_hooks_of_state_dicts():
    def run(m, where):
        seen, net = [], m.nn.Sequential(layer(m))
        net.register_state_dict_pre_hook(lambda mod, prefix, keep: seen.append((prefix, keep)))

        def rename(mod, state, prefix, local):
            seen.append((prefix, dict(local)))
            state[f"{prefix}kernel"] = state.pop(f"{prefix}weight")

        def name_back(mod, state, prefix, local, strict, missing, unexpected, errors):
            seen.append((prefix, sorted(state), strict))
            state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")

        def forgive(mod, keys):
            seen.append((sorted(keys.missing_keys), sorted(keys.unexpected_keys)))
            keys.unexpected_keys.clear()

        net[0].register_state_dict_post_hook(rename)
        net[0].register_load_state_dict_pre_hook(name_back)
        net.register_load_state_dict_post_hook(forgive)
        state = net.state_dict()
        keys = net.load_state_dict({**state, "more": m.ones(1)})
        return seen, list(state), list(state._metadata.items()), [list(k) for k in keys]

    seen, keys, metadata, found = both(run)
    assert keys == ["0.kernel"]
    assert found == [[], []]


def test_extra_state_and_overridden_loading():
    def run(m, where):
        class Counted(m.nn.Linear):
            _version = 3
            count = 0

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"]

            def _load_from_state_dict(self, state, prefix, local, *rest):
                seen.append((prefix, local.get("version")))
                if f"{prefix}old" in state:
                    state[f"{prefix}bias"] = state.pop(f"{prefix}old")
                super()._load_from_state_dict(state, prefix, local, *rest)

        seen, net = [], m.nn.Sequential(Counted(2, 2))
        net[0].count = 5
        state = net.state_dict()
        state["0.old"] = state.pop("0.bias") * 0
        other = m.nn.Sequential(Counted(2, 2))
        result = [list(k) for k in other.load_state_dict(state)]
        state.pop("0._extra_state")
        missing = other.load_state_dict(state, strict=False).missing_keys
        return seen, result, other[0].count, other[0].bias, missing

    seen, _, count, bias, missing = both(run)
    assert (count, bias, missing) == (5, [0, 0], ["0._extra_state"])
    assert seen[0] == ["0.", 3]


def test_batch_norm_of_the_first_version_loads():
    def run(m, where):
        net = m.nn.Sequential(m.nn.BatchNorm1d(2))
        state = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
        return [list(k) for k in net.load_state_dict(state)]

    assert both(run) == [[], []]


def test_hooks_are_copied_with_their_module():
    net = layer(lucid_gpu)
    net.register_forward_hook(_double)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert lucid_gpu.equal(other(lucid_gpu.ones(1, 3)), net(lucid_gpu.ones(1, 3)))
        assert other.weight is not net.weight


def _double(module, args, output):
    return output * 2


def test_an_error_names_the_innermost_layer():
    net = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 3)))
    words = r"cannot be multiplied.* \[in Linear\(in_features=4, out_features=3, bias=True\)\]$"
    with pytest.raises(RuntimeError, match=words):
        net(lucid_gpu.ones(2, 5))

    class Own(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        nn.Sequential(Own())(1)


def test_submodules_by_dotted_names():
    def run(m, where):
        net = m.nn.Sequential(m.nn.Sequential(layer(m), m.nn.BatchNorm1d(2)))
        net.set_submodule("0.0", m.nn.Identity())
        net.get_submodule("0").set_submodule("2", m.nn.ReLU())
        net.compile()
        return repr(net), net.get_buffer("0.1.running_var"), list(net.state_dict())

    both(run)
    empty = nn.BatchNorm1d(3).to_empty(device="cpu").type(lucid_gpu.float64)
    assert {v.dtype for v in empty.state_dict().values()} == {lucid_gpu.float64}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, net: net.get_parameter("forward"), "`forward` is not an nn.Parameter"),
        (lambda m, net: net.get_parameter("x"), "Linear has no attribute `x`"),
        (lambda m, net: net.get_buffer("weight"), "`weight` is not a buffer"),
        (lambda m, net: net.get_buffer("x"), "Linear has no attribute `x`"),
        (lambda m, net: net.set_submodule("", net), "Cannot set the submodule without a target"),
        (lambda m, net: net.set_submodule("x", 3), "`module` is not an nn.Module, found"),
        (lambda m, net: net.set_submodule("x", net, True), "Linear has no attribute `x`"),
        (lambda m, net: net.load_state_dict([1]), "Expected state_dict to be dict-like, got"),
        (lambda m, net: net.load_state_dict({"weight": 3}), "expected torch.Tensor or Tensor-like"),
        (lambda m, net: m.nn.Sequential(net) + net, "add operator supports only objects of Seq"),
        (lambda m, net: m.nn.Sequential(net) * 0, "Non-positive multiplication factor 0 for"),
        (lambda m, net: m.nn.Sequential(net) * 1.5, "unsupported operand type(s) for *"),
        (lambda m, net: m.nn.ModuleList(3), "ModuleList.extend should be called with an iterabl"),
        (lambda m, net: m.nn.ParameterList()(), "ParameterList should not be called."),
        (lambda m, net: m.nn.ParameterList()[0], "index 0 is out of range"),
        (lambda m, net: m.nn.ParameterList(3), "should be called with an iterable, but got int"),
        (lambda m, net: m.nn.ParameterDict()["x"], "has no attribute 'x'"),
        (lambda m, net: m.nn.ParameterDict({3: 4}), "Index given to ParameterDict cannot be used"),
        (lambda m, net: m.nn.ParameterDict([[1, 2, 3]]), "element #0 has length 3; 2 is required"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m, layer(m)), words)


def test_positional_arguments_of_state_dict():
    for m, _ in modules():
        with pytest.warns(FutureWarning, match="Positional args are being deprecated, use kwargs"):
            assert list(layer(m).state_dict({}, "net.")) == ["net.weight"]


def test_containers_of_parameters():
    def run(m, where):
        held = m.nn.Module()
        held.list = p = m.nn.ParameterList([m.zeros(2), m.nn.Parameter(m.ones(1)), "a"])
        p.append(m.ones(3)).extend([m.zeros(1)])
        p[0] = m.full((2,), 7.0)
        p += [m.ones(1)]
        held.dict = d = m.nn.ParameterDict(
            {"b": m.nn.Parameter(m.ones(1)), "a": m.zeros(2), "c": 4}  # sorted, as by PyTorch
        )
        d.update([("t", m.ones(2))])
        d |= m.nn.ParameterDict({"k": m.ones(1)})
        d.setdefault("q", m.ones(1))
        return (
            *(list(held.state_dict()), [type(v).__name__ for v in p], p[0], p[-2:][0], len(p)),
            *(list(d), d.pop("a"), d.popitem()[0], d["c"], "b" in d, d.get("z"), len(d)),
            *(list(reversed(d)), list((d | d.fromkeys(["x"])).keys()), [k for k, _ in d.items()]),
            repr(held).replace(m.__name__, "torch"),
            *[repr(c) for c in (m.nn.ParameterList(["a"]), m.nn.ParameterDict({"b": 1}))],
            repr((m.nn.Sequential(m.nn.ReLU()) * 2).append(m.nn.Tanh())),
        )

    both(run)
    assert np.all([isinstance(v, nn.Parameter) for v in nn.ParameterList([lucid_gpu.ones(1)])])


def test_tables_hold_the_functions():
    """Packages look for their own hooks in a module's tables."""
    layer = nn.Linear(2, 2)

    def hook(*args):
        return None

    before = layer.register_forward_pre_hook(hook, with_kwargs=True)
    after = layer.register_forward_hook(hook, always_call=True)
    assert layer._forward_pre_hooks == {before.id: hook}
    assert layer._forward_hooks == after.hooks_dict_ref() == {after.id: hook}
    assert after.id in layer._forward_hooks_always_called
    assert after.id not in layer._forward_hooks_with_kwargs
    copied = copy.deepcopy(before)
    before.remove()
    after.remove()
    assert copied.id == before.id
    for table in ("_hooks", "_pre_hooks", "_pre_hooks_with_kwargs", "_hooks_always_called"):
        assert not getattr(layer, f"_forward{table}")


def test_hooks_of_loading_do_not_keep_the_module():
    layer = nn.Linear(2, 2)
    layer.register_load_state_dict_pre_hook(print)
    gone = weakref.ref(layer)
    del layer
    assert gone() is None


def test_inputs_without_gradient_stay_so_under_backward_hooks():
    seen = []

    class Two(nn.Module):
        def forward(self, x, y):
            seen.append((x.requires_grad, y.requires_grad))
            return x * y

    layer, x = Two(), lucid_gpu.ones(2, requires_grad=True)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    layer(x, x.detach()).sum().backward()
    assert seen == [(True, False)]


def test_regular_backward_hooks_stand_on_the_last_node():
    """What they watch may be written in place; what they return replaces that node's gradients."""

    def run(m, where):
        net = m.nn.Sequential(layer(m, where, 3), m.nn.ReLU(inplace=True))
        seen = []
        x = m.arange(6.0).reshape(2, 3).to(where).requires_grad_()
        with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
            handle = net[0].register_backward_hook(lambda *call: seen.append(call))
            net(x).sum().backward()
        ((module, grad_input, grad_output),) = seen
        seen = [g.tolist() for g in (*grad_input[:1], *grad_output, x.grad, net[0].weight.grad)]
        handle.remove()
        with pytest.warns(FutureWarning):
            net[0].register_backward_hook(lambda module, before, after: tuple([-g for g in before]))
            net(x).sum().backward()
        return [module is net[0], *seen, x.grad.tolist()]

    both(run)


def test_a_module_has_regular_or_full_backward_hooks():
    module = lucid_gpu.nn.Linear(2, 2)
    module.register_backward_hook(print)
    with pytest.raises(RuntimeError, match="both regular backward hooks and full backward hooks"):
        module.register_full_backward_hook(print)
    handle = nn.modules.module.register_module_full_backward_hook(print)
    with pytest.raises(RuntimeError, match="as a global Module hook"):
        nn.modules.module.register_module_backward_hook(print)
    handle.remove()


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda x: {"y": x * 2}, "does not return a single Tensor"),
        (lambda x: (x * 2, x + 1), "generated by different autograd Nodes"),
        (lambda x: x.exp(), None),
    ],
    ids=["dictionary", "two nodes", "one node"],
)
def test_regular_backward_hooks_warn_of_what_they_miss(forward, words):
    module = nn.Module()
    module.forward = forward
    module.register_backward_hook(lambda *call: None)
    x = lucid_gpu.ones(2, requires_grad=True) * 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module(x)
    assert len(said) == (words is not None) and all(words in str(w.message) for w in said)


@pytest.mark.parametrize("case", ["input", "base of an input", "output"])
def test_what_hooks_watch_is_not_written_in_place(case):
    """A write would reach the tensor outside of the module, or miss it."""

    def run(m):
        class Writes(m.nn.Module):
            def forward(self, x):
                self.input = x
                if case == "input":
                    x *= 3
                return x.clone()

        module = Writes()
        module.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        y = m.ones(3, requires_grad=True) * 5
        result = module(y)
        if case == "output":
            result *= 2
        y[0] *= 7
        return module.input + 2  # refused here, and not only where the value is read

    same_error(run, "BackwardHookFunction", "is a view and", "modified inplace")


def test_post_hooks_of_loading_run_where_values_do_not_fit():
    def run(m, where):
        net, seen = m.nn.Sequential(layer(m)), []
        net.register_load_state_dict_post_hook(lambda mod, keys: seen.append(str(keys)))
        state = {"0.weight": m.ones(1), "more": m.ones(1)}
        with pytest.raises(RuntimeError) as error:
            net.load_state_dict(state)
        return seen, str(error.value).replace("lucid_gpu.Size", "torch.Size")

    both(run)
