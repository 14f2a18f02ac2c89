"""`torch.nested` for code that imports it: there are no nested tensors, and making one refuses."""

from __future__ import annotations

from lucid_gpu.compat.refused import refused

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

_INSTEAD = (
    "there are no nested tensors; pad batches of unequal length by nn.utils.rnn.pad_sequence, or "
    "pack them by nn.utils.rnn.pack_sequence"
)

as_nested_tensor = refused("nested.as_nested_tensor", _INSTEAD)
masked_select = refused("nested.masked_select", _INSTEAD)
narrow = refused("nested.narrow", _INSTEAD)
nested_tensor = refused("nested.nested_tensor", _INSTEAD)
nested_tensor_from_jagged = refused("nested.nested_tensor_from_jagged", _INSTEAD)
to_padded_tensor = refused("nested.to_padded_tensor", _INSTEAD)
