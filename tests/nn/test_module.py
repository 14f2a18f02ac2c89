"""Module: registering, calling, hooks, moving, state."""

import copy
import gc
from collections import OrderedDict

import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")


def network(m):
    class Block(m.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.linear = m.nn.Linear(features, 2)
            self.norm = m.nn.BatchNorm1d(2)
            self.register_buffer("scale", m.ones(2))
            self.register_buffer("scratch", m.zeros(1), persistent=False)
            self.register_parameter("absent", None)

        def forward(self, x):
            return self.norm(self.linear(x)) * self.scale

    class Network(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = m.nn.ModuleList([Block(3), Block(2)])
            self.shift = m.nn.Parameter(m.zeros(2))
            self.act = m.nn.ReLU()
            self.same = self.act

        def forward(self, x):
            for block in self.blocks:
                x = self.act(block(x))
            return x + self.shift

    return Network()


LISTS = {
    "parameters": lambda n: [tuple(p.shape) for p in n.parameters()],
    "named_parameters": lambda n: [k for k, _ in n.named_parameters()],
    "own parameters": lambda n: [k for k, _ in n.named_parameters("top", recurse=False)],
    "named_buffers": lambda n: [k for k, _ in n.named_buffers()],
    "named_modules": lambda n: [(k, type(m).__name__) for k, m in n.named_modules()],
    "named_children": lambda n: [k for k, _ in n.named_children()],
    "modules": lambda n: [type(m).__name__ for m in n.modules()],
    "modules that stand there twice": lambda n: len([*n.modules(remove_duplicate=False)]),
    "state_dict": lambda n: list(n.state_dict()),
    "state_dict with prefix": lambda n: list(n.state_dict(prefix="a.")),
    "repr": repr,
    "get_submodule": lambda n: type(n.get_submodule("blocks.1.linear")).__name__,
    "get_parameter": lambda n: tuple(n.get_parameter("blocks.0.linear.weight").shape),
    "training": lambda n: [m.training for m in n.eval().modules()],
    "zero_grad": lambda n: [p.grad for p in n.parameters()],
    "requires_grad_": lambda n: [p.requires_grad for p in n.requires_grad_(False).parameters()],
    "double": lambda n: [str(t.dtype).split(".")[1] for t in n.double().state_dict().values()],
}


@pytest.mark.parametrize("name", LISTS)
def test_what_it_holds_is_torchs(name):
    look = LISTS[name]
    assert look(network(lucid_gpu)) == look(network(torch_module()))


def test_moves_and_casts_in_place(device):
    net = network(lucid_gpu)
    weight = net.blocks[0].linear.weight
    weight.grad = lucid_gpu.ones_like(weight)
    assert net.to(device, lucid_gpu.float64) is net
    assert net.blocks[0].linear.weight is weight
    assert weight.requires_grad and weight.is_leaf
    assert {t.device.type for t in net.state_dict().values()} == {device}
    assert weight.dtype is weight.grad.dtype is lucid_gpu.float64
    assert net.blocks[0].norm.num_batches_tracked.dtype is lucid_gpu.int64
    assert net.half().to(lucid_gpu.ones(1, dtype=lucid_gpu.float32)).cpu().shift.dtype is (
        lucid_gpu.float32
    )


def test_apply_sees_children_first():
    seen = []
    network(lucid_gpu).apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Network"
    assert seen[:3] == ["Linear", "BatchNorm1d", "Block"]


def test_zero_grad():
    layer = nn.Linear(2, 1)
    layer(lucid_gpu.ones(1, 2)).sum().backward()
    grad = layer.weight.grad
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.tolist() == [[0, 0]]
    layer.zero_grad()
    assert layer.weight.grad is None
    del grad


def test_assigning():
    module = nn.Module()
    module.x = 1
    module.x = nn.Parameter(lucid_gpu.ones(1))
    assert list(module._parameters) == ["x"] and "x" not in module.__dict__
    module.x = None
    assert module.x is None
    module.y = nn.Buffer(lucid_gpu.ones(1), persistent=False)
    module.y = lucid_gpu.zeros(1)
    assert [k for k, _ in module.named_buffers()] == ["y"] and not module.state_dict()
    module.z = nn.ReLU()
    assert "z" in dir(module)
    del module.z, module.y
    assert not hasattr(module, "z") and not hasattr(module, "y")


def test_a_module_of_pytorchs_is_named():
    torch = torch_module()
    with pytest.raises(TypeError, match="ReLU is not a Module subclass; it is PyTorch's"):
        nn.Sequential(torch.nn.ReLU())


def assign_before_init(m):
    class Broken(m.nn.Module):
        def __init__(self):
            self.weight = m.nn.Parameter(m.ones(1))

    Broken()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.Linear(1, 1).nothing, "'Linear' object has no attribute 'nothing'"),
        (lambda m: m.nn.Module()(1), 'is missing the required "forward" function'),
        (assign_before_init, "before Module.__init__() call"),
        (
            lambda m: setattr(m.nn.Linear(1, 1), "weight", m.ones(1)),
            "FloatTensor' as parameter 'weight' (torch.nn.Parameter or None expected)",
        ),
        (
            lambda m: setattr(m.nn.Sequential(m.nn.ReLU()), "0", 3),
            "as child module '0' (torch.nn.Module or None expected)",
        ),
        (lambda m: m.nn.Module().register_buffer("a.b", None), 'buffer name can\'t contain "."'),
        (lambda m: m.nn.Module().register_buffer("", None), "buffer name can't be empty string"),
        (lambda m: m.nn.Module().register_buffer("train", None), "attribute 'train' already exist"),
        (lambda m: m.nn.Module().register_parameter("p", m.ones(1)), "torch.nn.Parameter or None"),
        (
            lambda m: m.nn.Module().register_parameter("p", m.nn.Parameter(m.ones(1)) * 2),
            "'p' (torch.nn.Parameter or None required)",
        ),
        (lambda m: m.nn.Module().add_module("a", 3), "is not a Module subclass"),
        (lambda m: m.nn.Module().train("yes"), "training mode is expected to be boolean"),
        (lambda m: m.nn.Linear(1, 1).to(m.int64), "only accepts floating point or complex dtypes"),
        (lambda m: m.nn.Linear(1, 1).get_submodule("a"), "has no attribute `a`"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


# -- hooks -------------------------------------------------------------------------------------


def test_forward_hooks_in_order():
    layer, calls = nn.Identity(), []

    def note(name, change=None):
        def hook(module, *rest):
            calls.append(name)
            return None if change is None else change(rest[-1])

        return hook

    layer.register_forward_pre_hook(note("pre", lambda args: (args[0] + 1,)))
    layer.register_forward_hook(note("second", lambda out: out * 2))
    layer.register_forward_hook(note("first"), prepend=True)
    handle = layer.register_forward_hook(note("removed"))
    handle.remove()
    assert layer(3) == 8
    assert calls == ["pre", "first", "second"]


def test_hooks_with_keywords():
    class Scaled(nn.Module):
        def forward(self, x, scale=1):
            return x * scale

    layer, seen = Scaled(), {}
    layer.register_forward_pre_hook(lambda m, a, k: (a, {"scale": 5}), with_kwargs=True)
    layer.register_forward_hook(lambda m, a, k, out: seen.update(k), with_kwargs=True)
    assert layer(2, scale=3) == 10
    assert seen == {"scale": 5}


def test_a_hook_that_is_always_called():
    class Failing(nn.Module):
        def forward(self):
            raise ValueError("no")

    layer, calls = Failing(), []
    layer.register_forward_hook(lambda *a: calls.append("usual"))
    layer.register_forward_hook(lambda *a: calls.append(a[-1]), always_call=True)
    with pytest.raises(ValueError, match="no"):
        layer()
    assert calls == [None]


def test_handle_is_a_context_manager():
    layer, calls = nn.Identity(), []
    with layer.register_forward_hook(lambda *a: calls.append(1)):
        layer(1)
    layer(1)
    assert calls == [1]


# -- state -------------------------------------------------------------------------------------


def test_state_goes_round(device):
    source, target = network(lucid_gpu), network(lucid_gpu)
    source(lucid_gpu.randn(5, 3))
    target.to(device)
    result = target.load_state_dict(source.state_dict())
    assert str(result) == "<All keys matched successfully>"
    for name, value in source.state_dict().items():
        assert lucid_gpu.equal(value.cpu(), target.state_dict()[name].cpu()), name


def test_state_shares_memory_and_has_no_history():
    layer = nn.Linear(1, 1, bias=False)
    state = layer.state_dict()["weight"]
    assert not state.requires_grad
    with lucid_gpu.no_grad():
        layer.weight.fill_(7)
    assert state.item() == 7
    assert layer.state_dict(keep_vars=True)["weight"] is layer.weight


def test_loading_keeps_parameters_that_optimizers_hold():
    layer = nn.Linear(1, 1)
    weight = layer.weight
    layer.load_state_dict({k: v.clone() + 1 for k, v in layer.state_dict().items()})
    assert layer.weight is weight and weight.requires_grad
    layer.load_state_dict({k: v.clone() for k, v in layer.state_dict().items()}, assign=True)
    assert layer.weight is not weight and isinstance(layer.weight, nn.Parameter)


def test_every_problem_is_in_one_message():
    def load(m):
        m.nn.Linear(2, 3).load_state_dict({"weight": m.ones(3, 3), "extra": m.ones(1)})

    same_error(
        load,
        "Error(s) in loading state_dict for Linear:\n\t",
        'Missing key(s) in state_dict: "bias". ',
        'Unexpected key(s) in state_dict: "extra". ',
        "size mismatch for weight: copying a param with shape",
        "[3, 3]) from checkpoint, the shape in current model is",
    )
    same_error(lambda m: m.nn.Linear(1, 1).load_state_dict([1]), "Expected state_dict to be dict")
    same_error(
        lambda m: m.nn.Linear(1, 1, bias=False).load_state_dict({"weight": 3}),
        'While copying the parameter named "weight"',
    )


def test_nothing_is_loaded_after_an_error():
    layer = nn.Linear(2, 1)
    before = layer.weight.detach().clone()
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict({"weight": before + 1})
    assert lucid_gpu.equal(layer.weight.detach(), before)


def test_not_strict():
    layer = nn.Linear(2, 1)
    result = layer.load_state_dict({"weight": lucid_gpu.ones(1, 2), "x": 1}, strict=False)
    assert result.missing_keys == ["bias"] and result.unexpected_keys == ["x"]
    assert layer.weight.tolist() == [[1, 1]]


def test_torchs_weights_load_and_give_torchs_result(device):
    torch = torch_module()
    theirs, ours = network(torch), network(lucid_gpu).to(device)
    state = {k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    x = torch.randn(4, 3)
    expected, got = theirs(x), ours(lucid_gpu.tensor(x.numpy()).to(device))
    assert lucid_gpu.allclose(
        got.detach(), lucid_gpu.tensor(expected.detach().numpy(), device=device), 1e-4, 1e-5
    )
    for name, value in theirs.state_dict().items():
        mine = ours.state_dict()[name]
        same = lucid_gpu.tensor(value.numpy(), device=device)
        assert lucid_gpu.allclose(mine, same, 1e-4, 1e-5), name


def test_deepcopy_is_independent():
    net = network(lucid_gpu)
    twin = copy.deepcopy(net)
    with lucid_gpu.no_grad():
        twin.shift.fill_(5)
    assert net.shift.tolist() == [0, 0]
    assert list(twin.state_dict()) == list(net.state_dict())
    assert isinstance(twin.shift, nn.Parameter) and twin.shift.requires_grad
    assert twin.act is twin.same


def test_deepcopy_of_a_parameter_has_no_gradient():
    weight = nn.Parameter(lucid_gpu.ones(2))
    (weight * 2).sum().backward()
    assert copy.deepcopy(weight).grad is None
    assert weight.grad.tolist() == [2, 2]


# -- containers --------------------------------------------------------------------------------


def sequential(m):
    return m.nn.Sequential(m.nn.Linear(2, 3), m.nn.ReLU(), m.nn.Linear(3, 1))


USES = {
    "index": lambda s, m: repr(s[1]),
    "negative index": lambda s, m: repr(s[-1]),
    "slice": lambda s, m: repr(s[1:]),
    "length": lambda s, m: len(s),
    "append": lambda s, m: repr(s.append(m.nn.Tanh())),
    "insert": lambda s, m: repr(s.insert(1, m.nn.Tanh())),
    "extend": lambda s, m: repr(s.extend([m.nn.Tanh(), m.nn.Tanh()])),
    "pop": lambda s, m: (repr(s.pop(0)), len(s)),
    "delete": lambda s, m: (s.__delitem__(1), repr(s)),
    "delete a slice": lambda s, m: (s.__delitem__(slice(0, 2)), repr(s)),
    "replace": lambda s, m: (s.__setitem__(1, m.nn.Tanh()), repr(s)),
    "join": lambda s, m: repr(s + s),
}


@pytest.mark.parametrize("use", USES)
def test_sequential_behaves_as_torchs(use):
    assert USES[use](sequential(lucid_gpu), lucid_gpu) == USES[use](
        sequential(torch_module()), torch_module()
    )


def test_sequential_with_names():
    model = nn.Sequential(OrderedDict(first=nn.Linear(2, 3), second=nn.ReLU()))
    assert list(model.state_dict()) == ["first.weight", "first.bias"]
    assert model(lucid_gpu.ones(1, 2)).shape == (1, 3)
    assert list(model[:1].state_dict()) == ["first.weight", "first.bias"]


def test_module_list():
    def use(m):
        layers = m.nn.ModuleList(m.nn.Linear(2, 2) for _ in range(3))
        layers += [m.nn.ReLU()]
        layers.insert(0, m.nn.ReLU())
        return repr(layers), repr(layers + [m.nn.ReLU()]), len(list(layers)), repr(layers[1:3])

    assert use(lucid_gpu) == use(torch_module())


def test_module_dict():
    def use(m):
        layers = m.nn.ModuleDict({"a": m.nn.ReLU(), "b": m.nn.Linear(1, 1)})
        layers.update([("c", m.nn.Tanh())])
        del layers["a"]
        popped = repr(layers.pop("c"))
        return repr(layers), popped, "b" in layers, list(layers.keys()), len(layers)

    assert use(lucid_gpu) == use(torch_module())
    same_error(lambda m: m.nn.ModuleDict(3), "should be called with an iterable of key/value pairs")
    same_error(lambda m: m.nn.ModuleList()[0], "index 0 is out of range")


def test_a_model_that_is_where_it_should_be_trains_on(device):
    """`to` that changes nothing leaves the parameters' memory and its count of writes alone."""
    nn = lucid_gpu.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(device)
    optimizer = lucid_gpu.optim.Adam(model.to(device).to(lucid_gpu.float32).parameters())
    losses = []
    for _ in range(3):
        loss = model(lucid_gpu.ones(2, 4, device=device)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


def test_a_repeated_sequential_shares_its_modules() -> None:
    layer = lucid_gpu.nn.Linear(1, 1)
    grown = lucid_gpu.nn.Sequential(layer)
    grown *= 3
    for repeated in (lucid_gpu.nn.Sequential(layer) * 3, 3 * lucid_gpu.nn.Sequential(layer), grown):
        assert len(repeated) == 3
        assert all(module is layer for module in repeated)


# --- converting in place --------------------------------------------------------------------------


class Holder(nn.Module):
    """Holds a tensor that is neither parameter nor buffer, as metrics do."""

    def __init__(self):
        super().__init__()
        self.state, self.inner = lucid_gpu.ones(2), nn.Linear(2, 2)

    def _apply(self, fn, recurse=True):
        self.state = fn(self.state)
        return super()._apply(fn, recurse)


def test_a_child_converts_what_its_class_holds():
    holder = nn.Sequential(nn.Sequential(Holder())).double()[0][0]
    assert holder.state.dtype is holder.inner.weight.dtype is lucid_gpu.float64


def test_a_write_through_apply_is_a_write():
    layer = nn.Linear(2, 2)
    square = layer.weight * layer.weight
    layer.weight.grad = lucid_gpu.ones(2, 2)
    versions = layer.weight._version, layer.weight.grad._version
    layer._apply(lambda t: t.add_(1))
    assert (layer.weight._version, layer.weight.grad._version) == (versions[0] + 1, versions[1] + 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_to_a_memory_format():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2))
    net.to(memory_format=lucid_gpu.channels_last)
    assert net[0].weight.stride() == (27, 1, 9, 3) and net[1].weight.stride() == (2, 1)


def test_to_says_what_it_does_not_do():
    with pytest.raises(RuntimeError, match="does not accept copy argument"):
        nn.Linear(2, 2).to("cpu", copy=True)
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        nn.Linear(2, 2).to(lucid_gpu.complex64)


def test_arguments_go_to_the_class_behind_module_where_it_says_so():
    class Mixin:
        def __init__(self, size):
            self.size = size

    class Net(nn.Module, Mixin):
        call_super_init = True

    assert Net(3).size == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Module(size=3)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(3)


def test_grad_under_its_private_name():
    leaf, plain = nn.Parameter(lucid_gpu.ones(2)), lucid_gpu.ones(2)
    for t in (leaf, plain):
        t._grad = lucid_gpu.full((2,), 3.0)
        assert t.grad.tolist() == t._grad.tolist() == [3.0, 3.0]
    assert plain.requires_grad_().grad.tolist() == [3.0, 3.0]


def test_a_child_may_name_its_modules_itself() -> None:
    class Closed(nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield f"{prefix} closed", self

    shared = nn.Linear(2, 2)
    closed = Closed()
    closed.inner = shared
    model = nn.Sequential(shared, closed, nn.Sequential(shared, nn.Tanh()))
    names = [name for name, _ in model.named_modules()]
    assert names == ["", "0", "1 closed", "2", "2.1"]
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    assert names == ["", "0", "1 closed", "2", "2.0", "2.1"]


@pytest.mark.parametrize("case", ["load_state_dict", "multi_dot", "interpreters"])
def test_no_reference_cycle_keeps_tensors(case):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    state = copy.deepcopy(model).state_dict()
    matrices = [lucid_gpu.ones(2, 2) for _ in range(3)]
    run = {
        "load_state_dict": lambda: model.load_state_dict(state),
        "multi_dot": lambda: lucid_gpu.linalg.multi_dot(matrices),
        "interpreters": lambda: lucid_gpu.vmap(lucid_gpu.vmap(lucid_gpu.relu))(matrices[0]),
    }[case]
    with lucid_gpu.autocast("cpu"):
        run()
        gc.collect()
        run()
        assert gc.collect() == 0


def test_a_getattr_that_looks_for_children_may_be_asked_before_there_are_any():
    class Wrap(nn.Module):
        def __init__(self, module):
            super().__init__()
            self._module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self._module, name)

    assert Wrap(nn.Linear(2, 3)).out_features == 3


@pytest.mark.parametrize("make", [lambda m: m.nn.Linear(1, 1), lambda m: m.nn.Parameter(m.ones(1))])
def test_assigning_over_a_name_of_the_class(make):
    said = []
    for m in (lucid_gpu, torch_module()):

        class Net(m.nn.Module):
            part = None

            def __init__(self, value):
                super().__init__()
                self.part = value

        try:
            net = Net(make(m))
            said.append((net.part, list(net._modules), list(net._parameters)))
        except KeyError as error:
            said.append(str(error))
    assert said[0] == said[1]


@pytest.mark.parametrize("convert", ["double", "half", "to_meta"])
def test_a_conversion_keeps_the_gradients_object(convert):
    def run(m, where):
        net = m.nn.Linear(2, 1).to(where)
        net.weight.grad = gradient = m.ones(1, 2).to(where).requires_grad_()
        net.to("meta") if convert == "to_meta" else getattr(net, convert)()
        kept = net.weight.grad is gradient or convert == "to_meta"
        return kept, str(gradient.dtype)[-2:], str(net.weight.grad.device), gradient.requires_grad

    assert run(lucid_gpu, "cpu")[0]
    if convert != "to_meta":
        assert run(lucid_gpu, "cpu") == run(torch_module(), "cpu")


def test_a_conversion_takes_sparse_gradients_along():
    table = lucid_gpu.nn.Embedding(4, 2, sparse=True)
    table(lucid_gpu.tensor([1, 1])).sum().backward()
    table.double()
    assert table.weight.grad.is_sparse
    assert table.weight.grad.dtype is lucid_gpu.float64


class Keeps(nn.Module):
    """Whatever it is given is an attribute, a child if it is a module, and the extra state."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def get_extra_state(self):
        return self.kept

    def set_extra_state(self, state):
        self.kept = state


class Grows(nn.Module):
    """Its extra state says which children there are."""

    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(count)])

    def get_extra_state(self):
        return {"count": len(self.layers)}

    def set_extra_state(self, state):
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(state["count"])])


KEPT = {
    "text": lambda: "something",
    "number": lambda: 5,
    "none": lambda: None,
    "module": lambda: nn.Linear(2, 2),
    "module with an extra state": lambda: Keeps(3),
    "nested": lambda: Keeps(Keeps(nn.Linear(2, 2))),
    "in a dictionary": lambda: {"a": nn.Linear(2, 2)},
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("assign", [False, True])
def test_extra_states_that_are_or_make_modules_are_loaded(name, assign):
    model, other = Keeps(KEPT[name]()), Keeps("else")
    assert str(other.load_state_dict(model.state_dict(), assign=assign)).startswith("<All keys")
    assert other.kept is model.kept and list(other.state_dict()) == list(model.state_dict())
    outer = nn.Sequential(Grows(3), Keeps(KEPT[name]()), Grows(0))
    loaded = nn.Sequential(Grows(1), Keeps("else"), Grows(2))
    loaded.load_state_dict(outer.state_dict(), assign=assign)
    assert [len(loaded[i].layers) for i in (0, 2)] == [3, 0]
    for one, two in zip(loaded[0].parameters(), outer[0].parameters(), strict=True):
        assert one.tolist() == two.tolist()
