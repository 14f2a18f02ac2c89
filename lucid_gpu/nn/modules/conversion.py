"""How `Module.to` and its kind change parameters: what `torch.__future__` sets."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]


class Conversion:
    """The settings, for all threads.

    Attributes
    ----------
    overwrite : bool
        A module gets new parameters.
    swap : bool
        Parameters exchange what they are with the converted ones; precedes ``overwrite``.
    """

    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether conversions give modules new parameters, instead of changing those that they have."""
    Conversion.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` set; False at first."""
    return Conversion.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions and `Module.load_state_dict` use `utils.swap_tensors`.

    Otherwise they set ``.data``, or copy into the parameters.
    """
    Conversion.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` set; False at first."""
    return Conversion.swap
