"""Constructors that name their own class, not a base, and the setting that was meant."""

from __future__ import annotations

import functools
import inspect
import re
from difflib import get_close_matches
from typing import Any

__all__ = ["all_named_in_errors", "named_in_errors"]


def named_in_errors(kind: type[Any]) -> None:
    """Let a class's constructor say what is wrong with its arguments under the class's name."""
    init: Any = kind.__init__
    asked = _asked(kind)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if error.args:
                error.args = (_reworded(str(error.args[0]), kind, init), *error.args[1:])
            raise

    vars(__init__)["__signature__"] = asked  # which `inspect.getfullargspec` reads too
    kind.__init__ = __init__


def _asked(kind: type[Any]) -> inspect.Signature:
    """The signature of a class's constructor, ``self`` included; a row of a table declares it."""
    declared = None if "__init__" in vars(kind) else getattr(kind, "_signature", None)
    if declared is None:
        return inspect.signature(kind.__init__)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([own, *declared.parameters.values()])


def all_named_in_errors(names: dict[str, Any], base: type[Any]) -> None:
    """`named_in_errors` for all subclasses of a base in a module's namespace."""
    for kind in {id(v): v for v in names.values()}.values():
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            named_in_errors(kind)


def _reworded(text: str, kind: type[Any], init: Any) -> str:
    text = text.removeprefix(f"{init.__qualname__}() ")
    if re.match("missing|got an|takes", text):
        text = f"{kind.__name__}.__init__() {text}"
    text, _, guess = text.partition(". Did you mean ")  # Python 3.13's, of the words it knows
    wrong = re.search(r"unexpected keyword argument '(\w+)'$", text)
    known = [*inspect.signature(kind).parameters]
    near = get_close_matches(wrong[1], known, 1) if wrong else []
    meant = f"{near[0]!r}?" if near else guess
    if meant:
        return f"{text}; did you mean {meant}"
    return f"{text}; it takes {', '.join(known)}" if wrong else text
