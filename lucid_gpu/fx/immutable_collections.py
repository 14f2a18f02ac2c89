"""Lists and dictionaries of a node's arguments, which nobody changes in place."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.func import trees

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to "
        "modify the kwargs or args of a torch.fx.Node object,\ninstead create a new copy of it and "
        "assign the copy to the node:\n    new_args = ... # copy and mutate args\n"
        "    node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that refuses changes."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dictionary that refuses changes."""

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return immutable_dict, (tuple(self.items()),)


trees.REGISTERED[immutable_list] = (
    lambda branches: (list(branches), None),
    lambda branches, _: immutable_list(branches),
)
trees.REGISTERED[immutable_dict] = (
    lambda branches: (list(branches.values()), list(branches)),
    lambda branches, keys: immutable_dict(zip(keys, branches, strict=True)),
)
