"""In-place ops under further names, and those that are functions of `lucid_gpu` too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.record import keeping
from lucid_gpu.ops.registry import named
from lucid_gpu.tensor import Tensor

ALIASES = {
    "absolute_": "abs_", "arccos_": "acos_", "arccosh_": "acosh_", "arcsin_": "asin_",
    "arcsinh_": "asinh_", "arctan2_": "atan2_", "arctan_": "atan_", "arctanh_": "atanh_",
    "divide_": "div_", "fix_": "trunc_", "greater_": "gt_", "greater_equal_": "ge_",
    "less_": "lt_", "less_equal_": "le_", "multiply_": "mul_", "negative_": "neg_",
    "not_equal_": "ne_", "subtract_": "sub_", "true_divide_": "div_",
}  # fmt: skip
NAMES = """
abs_ acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ ceil_
clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_
expm1_ fill_ fix_ floor_ frac_ log10_ log1p_ log2_ log_ nan_to_num_ neg_ negative_ rad2deg_
reciprocal_ round_ rsqrt_ sigmoid_ sin_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ zero_
i0_ logit_ sinc_ xlogy_
"""


# of ops that are imported late
WRITTEN = "gcd_ lcm_ ldexp_ heaviside_ nextafter_ renorm_ mvlgamma_ igamma_ igammac_"


def _function(name: str, method: str) -> Callable[..., Tensor]:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = getattr(input, method)(*args, **kwargs)
        return result

    return named(function, name, f"`Tensor.{method}`, in place.")


_MADE = {name: _function(name, ALIASES.get(name, name)) for name in (*ALIASES, *NAMES.split())}
_LATE = {name: written(_function(name[:-1], name[:-1])) for name in WRITTEN.split()}
_LATE["ldexp_"] = written(keeping(output=True)(_function("ldexp", "ldexp")))
METHODS = (*[_MADE[name] for name in ALIASES], *_LATE.values())
FUNCTIONS = (
    *[_MADE[name] for name in NAMES.split()],
    *[_LATE[n] for n in ("gcd_", "lcm_", "ldexp_")],
)
