"""`torch.jit.annotations`: lists that TorchScript fills from one number, as annotations."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

__all__ = [
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "BroadcastingList4",
    "BroadcastingList5",
    "BroadcastingList6",
    "Dict",
    "List",
    "Optional",
    "Tuple",
    "Union",
]


class _BroadcastingList:
    def __getitem__(self, element: Any) -> None:
        """``BroadcastingList2[int]``: an annotation that nobody reads."""


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1
