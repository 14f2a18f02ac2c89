from collections.abc import Callable, Sequence
from typing import Any

class Start:
    def __init__(
        self,
        launch: int,
        function: int,
        extents: tuple[int, int, int, int, int, int],
        shared: int,
        stream_of: Callable[[int], Any],
        device: int,
        letters: str,
        sizes: tuple[int, ...],
        values: bytes,
        /,
    ) -> None: ...
    def __call__(self, numbers: Sequence[Any], /) -> bool: ...

class Guarded:
    def __init__(
        self,
        allocate: Callable[[int], Any],
        otherwise: Callable[[int, Exception], Any],
        /,
    ) -> None: ...
    def __call__(self, size: int, /) -> Any: ...
