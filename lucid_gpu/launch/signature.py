"""A kernel's parameter list as C writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lucid_gpu.dtypes import ALL, dtype
from lucid_gpu.launch.arguments import LETTERS
from lucid_gpu.launch.source import C_TYPES

# C's names of numbers: `struct`'s letter, and the element type where tensors have it.
NUMBERS: dict[str, tuple[str, dtype | None]] = {
    **{C_TYPES[d.name]: (LETTERS[d.name], d) for d in ALL},
    "char": ("b", None),
    "unsigned short": ("H", None),
    "unsigned": ("I", None),
    "unsigned int": ("I", None),
    "unsigned long long": ("Q", None),
    "size_t": ("Q", None),
}
_ALIASES = {"signed": "int", "long long int": "long long", "unsigned char": "unsigned char"}


class Parameter(NamedTuple):
    """A parameter: ``type`` is what a pointer points to, or the number's own type.

    ``dimensions`` counts those of an array that comes with its shape and strides.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    dimensions: int = 0

    def bound(self, template: Mapping[str, str]) -> Parameter:
        """The parameter of one instance of a template."""
        return self._replace(type=substituted(self.type, template))


def substituted(text: str, template: Mapping[str, str]) -> str:
    """A C text with template parameters replaced by their values."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: template.get(word[0], word[0]), text)


def parameters(declaration: str) -> list[Parameter]:
    """Read a parameter list.

    Raises
    ------
    ValueError
        If a parameter has no name or no type, is a reference or a pointer to pointers, or two
        have one name.
    """
    parsed = [_parameter(text, declaration) for text in _split(declaration)]
    names = [p.name for p in parsed]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the signature {declaration!r} names {name!r} twice")
    return parsed


def _split(declaration: str) -> Iterator[str]:
    """The parts between commas that no angle brackets enclose."""
    if not declaration.strip():
        return
    depth, start = 0, 0
    for at, letter in enumerate(declaration):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            yield declaration[start:at]
            start = at + 1
    yield declaration[start:]


_PARAMETER = re.compile(r"(?P<type>.*[\s*>])(?P<name>[A-Za-z_]\w*)", re.DOTALL)


_STRIDED = re.compile(r"(?:const\s+)?strided\s*<(.*),\s*(\d+)\s*>", re.DOTALL)


def _parameter(text: str, declaration: str) -> Parameter:
    matched = _PARAMETER.fullmatch(text.strip())
    words = re.sub(r"__restrict__|__restrict|\brestrict\b", " ", matched["type"]) if matched else ""
    kind = re.sub(r"\*\s*const$", "*", " ".join(words.split()))
    strided = _STRIDED.fullmatch(kind)
    if strided:
        kind = f"{strided[1]}*"
    pointer = kind.endswith("*")
    pointed = kind[:-1].strip() if pointer else kind
    const = bool(re.search(r"\bconst\b", pointed))
    pointed = " ".join(re.sub(r"\bconst\b", " ", pointed).split())
    if matched is None or not pointed or re.search(r"[*&\[\]()]", pointed):
        raise ValueError(
            f"cannot read {text.strip()!r} in the signature {declaration!r}; a parameter is a type "
            "and a name, such as 'const float* x' or 'int n'"
        )
    dimensions = int(strided[2]) if strided else 0
    return Parameter(matched["name"], _ALIASES.get(pointed, pointed), pointer, const, dimensions)
