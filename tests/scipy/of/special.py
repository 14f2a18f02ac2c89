"""Calls of `scipy.special`."""

from __future__ import annotations

from tests.ops.samples import Row, fixed, row, t

UNIT, MIDDLE, WIDE, SHAPES = (0.1, 0.9), (0.3, 4.0), (-2.5, 2.5), (0.6, 4.0)
# The names of functions of one operand, by where that lies.
ONE = {
    UNIT: "ellipe ellipk ellipkm1 erfinv expit logit ndtri",
    (1.2, 1.8): "erfcinv",
    MIDDLE: """cbrt digamma entr exp1 expi gamma gammaln k0 k0e k1 k1e log1p loggamma psi rgamma
        y0 y1""",
    WIDE: """cosm1 dawsn erf erfc erfcx exp10 exp2 expm1 exprel gammasgn i0 i0e i1 i1e j0 j1
        log_expit log_ndtr ndtr sinc""",
}
# Those of two numbers that are both differentiated.
TWO = {
    "beta": (SHAPES, SHAPES),
    "betaln": (SHAPES, SHAPES),
    "binom": ((3.2, 6.0), (0.3, 2.0)),
    "boxcox": (MIDDLE, (-1.0, 2.0)),
    "boxcox1p": (MIDDLE, (-1.0, 2.0)),
    "chdtr": (SHAPES, MIDDLE),
    "chdtrc": (SHAPES, MIDDLE),
    "comb": ((3.2, 6.0), (0.3, 2.0)),
    "gammainc": (SHAPES, MIDDLE),
    "gammaincc": (SHAPES, MIDDLE),
    "gammainccinv": (SHAPES, UNIT),
    "gammaincinv": (SHAPES, UNIT),
    "huber": ((0.2, 0.8), WIDE),
    "inv_boxcox": (UNIT, UNIT),
    "inv_boxcox1p": (UNIT, UNIT),
    "kl_div": (MIDDLE, MIDDLE),
    "poch": (MIDDLE, MIDDLE),
    "pseudo_huber": (MIDDLE, WIDE),
    "rel_entr": (MIDDLE, MIDDLE),
    "stdtr": (SHAPES, WIDE),
    "stdtrit": (SHAPES, (0.1, 0.4)),
    "xlog1py": (WIDE, UNIT),
    "xlogy": (WIDE, MIDDLE),
}


# Their slopes are integrals: 48 numbers an element.
FEW = "betainc comb gammaincc gammainccinv gammaincinv stdtr"
# Second derivatives of these are made of those of betainc, gammainc and stdtr.
ONCE = "betaincc betaincinv chdtr chdtrc fdtr fdtrc stdtrit"


def of(name: str, *domains: tuple[float, float]) -> Row:
    parts = f"{FEW} {ONCE}".split()
    shape = (2,) if name in parts else (3, 2)
    made = row(f"special.{name}", *[t(*shape, of=domain) for domain in domains])
    return (
        made.but(twice="made of rows whose second derivatives are")
        if name in ONCE.split()
        else made
    )


ROWS = [
    *[of(name, domain) for domain, names in ONE.items() for name in names.split()],
    *[of(name, *domains) for name, domains in TWO.items()],
    *[
        row(f"special.{name}", fixed([0.0, 1.5]), t(3, 2, of=MIDDLE))
        for name in ["iv", "ive", "jv", "kv", "kve", "yv"]
    ],
    *[row(f"special.{n}", fixed([0.0, 2.0]), t(3, 2, of=MIDDLE)) for n in ("jn", "kn", "yn")],
    row("special.polygamma", fixed([0.0, 2.0]), t(3, 2, of=MIDDLE)),
    row("special.zeta", fixed([2.0, 3.5]), t(3, 2, of=MIDDLE)),
    row("special.zeta", fixed([2.0, 3.5])),
    row("special.multigammaln", t(3, of=(2.0, 4.0)), 3),
    *[of(name, SHAPES, SHAPES, UNIT) for name in ("betainc", "betaincc", "betaincinv")],
    *[of(name, SHAPES, SHAPES, MIDDLE) for name in ("fdtr", "fdtrc")],
    *[row(f"special.{n}", fixed([1.0, 3.0]), t(3, 2, of=MIDDLE)) for n in ("pdtr", "pdtrc")],
    row("special.hyp1f1", fixed([0.5, 2.0]), fixed([1.5, 3.0]), t(3, 2, of=WIDE)),
    row("special.hyp2f1", fixed([0.5]), fixed([1.5]), fixed([2.0]), t(3, 2, of=(-2.0, 0.8))),
    row("special.expn", fixed([1.0, 3.0]), t(3, 2, of=MIDDLE)),
    row("special.comb", t(3, of=(3.2, 6.0)), t(3, of=(0.3, 2.0)), repetition=True),
    row("special.logsumexp", t(3, 2)),
    row("special.logsumexp", t(3, 2), axis=0, keepdims=True),
    row("special.logsumexp", t(3, 2), axis=(0, 1), b=t(3, 2, of=MIDDLE)),
    row("special.logsumexp", t(3, 2), 1, t(3, 2), return_sign=True).compare(lambda pair: pair[0]),
    row("special.softmax", t(3, 2)),
    row("special.softmax", t(3, 2), axis=1),
    row("special.log_softmax", t(3, 2), axis=(0, 1)),
    row("special.log_softmax", t(3, 2), axis=0),
]
