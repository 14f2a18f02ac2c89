"""Bounds of what `bench.sass` reads from the machine code of attention, and how it reads."""

from __future__ import annotations

import pytest

from bench import sass
from tests.kernels import compiling

WIDE = """
        /*0000*/                   HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR4], R24 ;
        /*0010*/                   EXIT ;
"""
CODE = """
.L_x_1:
        /*0000*/                   LDGSTS.E.128 [R1], desc[UR4][R2.64] ;
        /*0010*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
        /*0030*/                   ISETP.GE.AND P1, PT, R1, R2, PT ;
        /*0040*/                   FSEL R1, R2, -INF , !P1 ;
.L_x_2:
        /*0050*/                   MUFU.EX2 R3, R3 ;
        /*0060*/                   LDSM.16.M88.4 R8, [R20] ;
        /*0070*/               @P2 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
"""


def test_a_turn_goes_past_what_edges_need() -> None:
    loop = sass.busiest(sass.parsed(CODE))
    assert loop == sass.Loop(6, 1, 4, 0, 1, 32 * 16 + 512, 32 * 16)
    assert loop.others == 5
    assert sass.counted(sass.parsed(WIDE)) == sass.Loop(2, 1, 64, 0, 0, 1024, 0)


@pytest.fixture(scope="module")
def attention() -> dict[str, sass.Kernel]:
    compiling.module()  # or a skip
    return {kernel.label: kernel for kernel in sass.kernels("attention")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "most"),
    [
        ("attention_forward bfloat16 64 128 64 8 1 void 0", 6),
        ("attention_forward bfloat16 128 64 32 8 1 void 0", 6),
        ("attention_forward bfloat16 64 64 64 8 3 void 0", 44),
        ("attention_forward bfloat16 128 64 64 8 3 void 0", 36),
        ("attention_gradients bfloat16 64 128 64 8 1 void 0", 8),
        ("attention_gradients bfloat16 128 128 32 8 1 void 0", 8),
    ],
)
def test_products_are_most_of_the_work(
    start: str, most: float, attention: dict[str, sass.Kernel]
) -> None:
    assert attention[start].loop.others <= most


@pytest.mark.slow
def test_warp_groups_multiply_by_their_own_instruction(attention: dict[str, sass.Kernel]) -> None:
    """HGMMA, of 64 rows and as many columns or more, multiplies for 32 cycles and more."""
    for columns, ceiling in ((64, 0.7), (128, 0.9)):
        loop = attention[f"attention_forward bfloat16 {columns} 64 64 8 3 void 0"].loop
        assert loop.multiplying >= 32 * loop.tensor > 0
        assert loop.ceiling() >= ceiling


@pytest.mark.slow
def test_nothing_spills_and_schedulers_have_two_warps(attention: dict[str, sass.Kernel]) -> None:
    for kernel in attention.values():
        assert not kernel.local, kernel
        assert kernel.warps >= 8, kernel
