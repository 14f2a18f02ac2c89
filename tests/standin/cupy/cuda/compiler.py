"""cupy.cuda.compiler: the error of a source that does not compile."""

from __future__ import annotations

from typing import Any


class CompileException(Exception):
    def __init__(self, msg: str, source: str, name: str, options: Any, backend: str = "nvrtc"):
        self._msg, self.source, self.name = msg, source, name
        self.options, self.backend = options, backend
        super().__init__()

    def __reduce__(self) -> Any:
        return type(self), (self._msg, self.source, self.name, self.options, self.backend)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self._msg

    def get_message(self) -> str:
        return self._msg

    def dump(self, f: Any) -> None:
        lines = self.source.split("\n")
        f.write("".join(f"{i + 1:02} {line}\n" for i, line in enumerate(lines)))
