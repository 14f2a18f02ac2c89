"""Files as `save` wrote them before it wrote PyTorch's archives: safetensors, objects as JSON."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

__all__ = ["NESTED", "safetensors"]

_CODES = {"float64": "F64", "float32": "F32", "uint8": "U8", "int64": "I64"}


def safetensors(metadata: dict[str, str], arrays: dict[str, Any]) -> bytes:
    """A file of row-major arrays."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    content = b""
    for name, array in arrays.items():
        offsets = [len(content), len(content) + array.nbytes]
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        content += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


# what an earlier version made of tensors, arrays and containers of every kind
NESTED = zlib.decompress(
    base64.b85decode(
        "c-n<k&2G~`5KciwJci}-5@pwkTSY<*94et+5E7@xiZ=Epv2bm(UKiRbQf^#&Biwlu9)(BfBQU!=>pG2799iC-`M#"
        "Oi`Pn?Y>Y3-xpUtj>;t5xLHuJ}Kepbh6GFz5)|60f@EpmVCGoQ5Nm6CO=YAHZ-H}#V=R#SiMU0zQ8?^B<6AX6f*3"
        "aO<=wvLDgTE66I{wyLX>Uk!1Af8%r<w^0iPNk^4rR0faIV@7+;;PI<R{)I$kt?1pI$&0en2cAd17pRADG~53RV$A"
        "xCDVDWL}hXT;*v`asTD{C^qQC?DZZ?n?Yh)Q7@O>98I9Ia6rqEKEN+EMnB90!tU3rXbSYa=6}9q2Cay%TD)iz`Lo"
        "_)nxC)rwTr%PX+D4#bZ~<^B`3>5`wRVb21XVH5xI~oOXqa0gu8@h4B0*rYvyF3W4^NszFbrb!Bu`Yw8d+b$_FWLI"
        "TN!fFA@E&<>8<N2yR>$g)6Z{A*$e>JI{tSbPv1Va7wVg4GTCJPflcKbs#nfn&YP;~6kBs?{@7lLx+z^qxE{NL(C`"
        "r^uG6@|;l{LdSvR1($PFZ~v&>2)&zFu>rtz1i#pZRIsWh+p4FbV^2h;7h-kEkhFlDDO?(I2?c3`HSmAw({lz_(pB"
        "pLe3wDqo083zo&Loqs8&``i=;5_Rq$Ycbx=iv}o)r#w#uDWlosbaB!B7-lmPeUlai|H_zk`6WvNx(GS^mCj1VTT;"
        "-Qv*gu#`CVvfVF7DecC7_C&r`B&|xM-tAG3a6GrG@s11~d*<B|c3<;&ivmKIWe0Q)ZxV4G4BYl|NMGgsN15MT!Y@"
        "7Q2oQD7L%%H-|#NBSwwvo@L?UV;yHX!<N6s^}DJoaDj;jH`Ho8Y&1gx?pv_Om&&n8{>+zk&BRyno>RJF&V=V|R15"
        "IsS#-d-t#1Aa3uE&B3-mw->#OmlsDrwx72Bf06S@{r"
    )
)
