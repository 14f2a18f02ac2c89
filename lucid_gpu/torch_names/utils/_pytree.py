"""`torch.utils._pytree`: trees of containers, on what `vmap` and `grad` take trees apart with."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu.func import trees

__all__ = [
    "GetAttrKey",
    "KeyEntry",
    "LeafSpec",
    "MappingKey",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "arg_tree_leaves",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dict",
    "treespec_leaf",
    "treespec_tuple",
]

_DICTS = (dict, OrderedDict)
Context = Any
PyTree = Any
Test = Callable[[Any], bool] | None


class SequenceKey(NamedTuple):
    """The index of a branch."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The branch."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The key of a branch."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The branch."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The name of a branch of a named tuple or data class."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The branch."""
        return getattr(obj, self.name)


KeyEntry = SequenceKey | MappingKey | GetAttrKey
_Path = tuple[Any, ...]


class TreeSpec:
    """What a tree is besides its leaves.

    Attributes
    ----------
    type : type or None
        Of the container; None for a leaf.
    context : object
        The keys of a dictionary, the context of a registered type, else None.
    num_leaves, num_children, num_nodes : int
    """

    def __init__(self, type: Any, context: Any = None, children_specs: Any = ()) -> None:
        if not isinstance(type, trees.Structure):
            keys: tuple[Any, ...] = ()
            if type in trees.REGISTERED:
                keys = (context,)
            elif type is not None and issubclass(type, dict):
                keys = tuple(context)
            type = trees.Structure(type, keys, tuple([c._structure for c in children_specs]))
        self._structure: trees.Structure = type

    @property
    def type(self) -> Any:
        return self._structure.kind

    @property
    def context(self) -> Any:
        kind, keys, _ = self._structure
        if kind in trees.REGISTERED:
            return keys[0]
        return list(keys) if kind is not None and issubclass(kind, dict) else None

    @property
    def num_children(self) -> int:
        return len(self._structure.children)

    @property
    def num_leaves(self) -> int:
        return sum(c.num_leaves for c in self.children()) + self.is_leaf()

    @property
    def num_nodes(self) -> int:
        return sum(c.num_nodes for c in self.children()) + 1

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The same as `children()`."""
        return self.children()

    def children(self) -> list[TreeSpec]:
        """Of each branch, what it is."""
        return [TreeSpec(child) for child in self._structure.children]

    def child(self, index: int) -> TreeSpec:
        """What a branch is."""
        return self.children()[index]

    def is_leaf(self) -> bool:
        """Whether the tree is a leaf."""
        return self._structure.kind is None

    def unflatten(self, leaves: Any) -> Any:
        """A tree of these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a tree that lie where this one has leaves.

        ValueError for a tree that is another above them.
        """
        if self.is_leaf():
            return [tree]
        parts, here = trees.flatten(tree, lambda t: t is not tree)
        if type(tree) in _DICTS and self.type in _DICTS and set(tree) == set(self._structure.keys):
            parts = [tree[key] for key in self._structure.keys]  # in whatever order they come
        elif (here.kind, here.keys, len(parts)) != (*self._structure[:2], self.num_children):
            raise ValueError(f"the tree {here} is not of the structure {self._structure}")
        return [p for c, part in zip(self.children(), parts) for p in c.flatten_up_to(part)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        return f"TreeSpec({self._structure})"


class LeafSpec(TreeSpec):
    """What a leaf is."""

    def __init__(self) -> None:
        super().__init__(trees.LEAF)


PyTreeSpec = TreeSpec


def treespec_leaf() -> LeafSpec:
    """What a leaf is."""
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """What a tuple of such trees is."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """What a dictionary of such trees is."""
    branches = dict(mapping, **kwargs)
    return TreeSpec(dict, list(branches), list(branches.values()))


# Of registered types, the functions to pairs of key and child.
_WITH_KEYS: dict[type, Callable[[Any], tuple[Any, Any]]] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
    **settings: Any,
) -> None:
    """Let a type be a container, here and in `lucid_gpu.func`.

    Parameters
    ----------
    flatten_fn : callable
        From a container, its children and a context.
    unflatten_fn : callable
        From children and context, the container.
    flatten_with_keys_fn : callable, optional
        From a container, pairs of a key and a child, and a context. Children without keys are
        numbered in paths.

    Raises
    ------
    ValueError
        If the type is registered.
    """
    if cls in trees.REGISTERED:
        raise ValueError(f"{cls} is already registered as pytree node.")
    trees.REGISTERED[cls] = (flatten_fn, unflatten_fn)
    if flatten_with_keys_fn is not None:
        _WITH_KEYS[cls] = flatten_with_keys_fn


_register_pytree_node = _private_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type,
    *,
    field_names: Sequence[str] | None = None,
    drop_field_names: Sequence[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Let a data class be a container: its fields that are not None are the branches.

    Parameters
    ----------
    field_names : sequence of str, optional
        All fields that its constructor takes, for a class that is no data class, say.
    drop_field_names : sequence of str, optional
        Fields that are left out, and keep their defaults.

    Raises
    ------
    ValueError
        If the class is registered, or lacks a field that is named.
    """
    if field_names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError(f"field_names must be specified with a list of all fields used to "
                             f"initialize {cls}, as it is not a dataclass.")  # fmt: skip
        field_names = [field.name for field in dataclasses.fields(cls) if field.init]
    unknown = [name for name in drop_field_names or () if name not in field_names]
    if unknown:
        raise ValueError(f"{cls} has no fields {unknown} to drop; it has {list(field_names)}")
    kept = [name for name in field_names if name not in (drop_field_names or ())]

    def taken_apart(obj: Any) -> tuple[list[Any], tuple[str, ...]]:
        names = tuple([name for name in kept if getattr(obj, name) is not None])
        return [getattr(obj, name) for name in names], names

    register_pytree_node(
        cls,
        taken_apart,
        lambda children, names: cls(**dict(zip(names, children))),
        flatten_with_keys_fn=lambda obj: (
            [(GetAttrKey(n), c) for n, c in zip(*reversed(taken_apart(obj)))],
            taken_apart(obj)[1],
        ),
    )


_get_node_type = type


class NodeDef(NamedTuple):
    """How a type of container is taken apart and put together."""

    type: type
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Any, Any], Any]


class _Nodes:
    """`SUPPORTED_NODES`: the types that are containers, with their `NodeDef`."""

    def __contains__(self, kind: Any) -> bool:
        return kind in trees.REGISTERED or issubclass(kind, (dict, list, tuple))

    def __getitem__(self, kind: Any) -> NodeDef:
        if kind not in self:
            raise KeyError(kind)
        return NodeDef(kind, _taken_apart, lambda values, context: _joined(kind, values, context))


def _taken_apart(tree: Any) -> tuple[list[Any], Any]:
    children, spec = trees.flatten(tree, lambda part: part is not tree)
    return children, TreeSpec(spec).context


def _joined(kind: Any, values: Any, context: Any) -> Any:
    return tree_unflatten(values, TreeSpec(kind, context, [LeafSpec() for _ in values]))


SUPPORTED_NODES = _Nodes()


def tree_flatten(tree: Any, is_leaf: Test = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and what the tree is besides them."""
    leaves, structure = trees.flatten(tree, is_leaf)
    return leaves, TreeSpec(structure)


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """A tree of these leaves.

    ValueError if they are too many or too few.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec "
            f"refers to a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    return trees.unflatten(leaves, treespec._structure)


def tree_leaves(tree: Any, is_leaf: Test = None) -> list[Any]:
    """The leaves in order."""
    return trees.flatten(tree, is_leaf)[0]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments, in order."""
    return tree_leaves([*args, *kwargs.values()])


def tree_iter(tree: Any, is_leaf: Test = None) -> Iterator[Any]:
    """The leaves, one by one."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Test = None) -> TreeSpec:
    """What a tree is besides its leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree: Any, is_leaf: Test = None) -> bool:
    """Whether a tree is a leaf."""
    return tree_structure(tree, is_leaf).is_leaf()


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Test = None) -> Any:
    """The tree with ``func(leaf, *leaves of the rests)`` in place of each leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *[spec.flatten_up_to(rest) for rest in rests]]
    return tree_unflatten(list(map(func, *columns)), spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Test = None) -> Any:
    """Call ``func`` with each leaf; the tree itself comes back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(types: Any, func: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    if isinstance(types, (type, tuple)) or not callable(types):
        return lambda leaf: func(leaf) if isinstance(leaf, types) else other(leaf)
    return lambda leaf: func(leaf) if types(leaf) else other(leaf)


def tree_map_only(types: Any, func: Any = None, tree: Any = None, is_leaf: Test = None) -> Any:
    """The tree with ``func(leaf)`` in place of each leaf of these types; without ``func``,
    a decorator of functions of one leaf.
    """
    if func is None:
        return lambda func: _only(types, func, lambda leaf: leaf)
    return tree_map(_only(types, func, lambda leaf: leaf), tree, is_leaf=is_leaf)


map_only = tree_map_only


def tree_map_only_(types: Any, func: Any, tree: Any, is_leaf: Test = None) -> Any:
    """Call ``func`` with each leaf of these types; the tree itself comes back."""
    tree_map_only(types, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Test = None) -> bool:
    """Whether something is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Test = None) -> bool:
    """Whether something is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(types: Any, pred: Any, tree: Any, is_leaf: Test = None) -> bool:
    """Whether something is true of all leaves of these types."""
    return tree_all(_only(types, pred, lambda leaf: True), tree, is_leaf)


def tree_any_only(types: Any, pred: Any, tree: Any, is_leaf: Test = None) -> bool:
    """Whether something is true of a leaf of these types."""
    return tree_any(_only(types, pred, lambda leaf: False), tree, is_leaf)


def _keyed(tree: Any) -> Iterator[tuple[Any, Any]]:
    """The branches of a container, each with its key."""
    if type(tree) in _WITH_KEYS:
        return iter(_WITH_KEYS[type(tree)](tree)[0])
    if isinstance(tree, dict):
        return ((MappingKey(key), child) for key, child in tree.items())
    if is_namedtuple_instance(tree):
        return ((GetAttrKey(name), getattr(tree, name)) for name in tree._fields)
    children = trees.flatten(tree, lambda part: part is not tree)[0]
    return ((SequenceKey(i), child) for i, child in enumerate(children))


def _with_paths(tree: Any, is_leaf: Test, above: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield above, tree
    else:
        for key, child in _keyed(tree):
            yield from _with_paths(child, is_leaf, (*above, key))


def tree_leaves_with_path(tree: Any, is_leaf: Test = None) -> list[tuple[_Path, Any]]:
    """The leaves, each with the keys that lead to it."""
    return list(_with_paths(tree, is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: Test = None
) -> tuple[list[tuple[_Path, Any]], TreeSpec]:
    """The leaves, each with the keys that lead to it, and what the tree is besides."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def keystr(kp: _Path) -> str:
    """The keys as one writes them in Python, such as ``['weights'][0].bias``."""
    return "".join([str(key) for key in kp])


def key_get(obj: Any, kp: _Path) -> Any:
    """The part of a tree to which keys lead."""
    for key in kp:
        obj = key.get(obj)
    return obj


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Test = None
) -> Any:
    """`tree_map`; ``func`` gets the keys that lead to the leaf before it."""
    paths = iter([path for path, _ in tree_leaves_with_path(tree, is_leaf)])
    return tree_map(lambda *leaves: func(next(paths), *leaves), tree, *rests, is_leaf=is_leaf)


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Test = None) -> Any:
    """A leaf for each leaf of ``treespec``, of which ``tree`` is the upper part; else None."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    parts, here = trees.flatten(tree, lambda t: t is not tree)
    there = treespec._structure
    if (here.kind, here.keys, len(parts)) != (there.kind, there.keys, len(there.children)):
        return None
    found = [_broadcast_to_and_flatten(p, c, is_leaf) for p, c in zip(parts, treespec.children())]
    return None if None in found else [leaf for leaves in found for leaf in leaves]


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Any, context: Any) -> dict[Any, Any]:
    return dict(zip(context, values))


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Any, context: Any) -> Any:
    return context(*values)


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[Any], Any]:
    return [(SequenceKey(i), value) for i, value in enumerate(d)], None


def _list_unflatten(values: Any, context: Any) -> list[Any]:
    return list(values)


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is one of named fields that Python's C files define, as `os.stat_result`."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "n_sequence_fields", None), int)
        and isinstance(getattr(cls, "n_fields", None), int)
    )


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is of such a class."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether an object is such a class, or of one."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is a named tuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _deque(children: Any, context: Any) -> Any:
    return deque(children, context)


trees.REGISTERED.setdefault(deque, (lambda d: (list(d), d.maxlen), _deque))
