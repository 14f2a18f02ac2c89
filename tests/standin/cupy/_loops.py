"""The loops of CuPy's universal functions, as its `types` lists them (`test_names.py` compares)."""

LOOPS = {
    "abs": (
        "cupy_absolute", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->f "
        "D->d"
    ),
    "absolute": (
        "cupy_absolute", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->f "
        "D->d"
    ),
    "acos": ("cupy_arccos", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "acosh": ("cupy_arccosh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "add": (
        "cupy_add", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "arccos": ("cupy_arccos", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "arccosh": ("cupy_arccosh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "arcsin": ("cupy_arcsin", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "arcsinh": ("cupy_arcsinh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "arctan": ("cupy_arctan", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "arctan2": ("cupy_arctan2", 2, 1, "ee->e EE->E ff->f dd->d FF->F DD->D"),
    "arctanh": ("cupy_arctanh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "asin": ("cupy_arcsin", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "asinh": ("cupy_arcsinh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "atan": ("cupy_arctan", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "atan2": ("cupy_arctan2", 2, 1, "ee->e EE->E ff->f dd->d FF->F DD->D"),
    "atanh": ("cupy_arctanh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "bitwise_and": (
        "cupy_bitwise_and", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "bitwise_count": (
        "cupy_bitwise_count", 1, 1,
        "b->B B->B h->B H->B i->B I->B l->B L->B q->B Q->B"
    ),
    "bitwise_invert": (
        "cupy_invert", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q"
    ),
    "bitwise_left_shift": (
        "cupy_left_shift", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "bitwise_not": (
        "cupy_invert", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q"
    ),
    "bitwise_or": (
        "cupy_bitwise_or", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "bitwise_right_shift": (
        "cupy_right_shift", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "bitwise_xor": (
        "cupy_bitwise_xor", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "cbrt": ("cupy_cbrt", 1, 1, "e->e E->E f->f d->d"),
    "ceil": (
        "cupy_ceil", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d"
    ),
    "conj": (
        "cupy_conjugate", 1, 1,
        "b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F D->D"
    ),
    "conjugate": (
        "cupy_conjugate", 1, 1,
        "b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F D->D"
    ),
    "copysign": ("cupy_copysign", 2, 1, "ee->e EE->E ff->f dd->d FF->F DD->D"),
    "cos": ("cupy_cos", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "cosh": ("cupy_cosh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "deg2rad": ("cupy_deg2rad", 1, 1, "e->e E->E f->f d->d"),
    "degrees": ("cupy_rad2deg", 1, 1, "e->e E->E f->f d->d"),
    "divide": (
        "cupy_true_divide", 2, 1,
        "qq->d qQ->d Qq->d QQ->d ee->e EE->E ff->f dd->d FF->F DD->D"
    ),
    "divmod": (
        "cupy_divmod", 2, 2,
        "bb->bb BB->BB hh->hh HH->HH ii->ii II->II ll->ll LL->LL qq->qq QQ->QQ ee->ee "
        "ff->ff dd->dd"
    ),
    "equal": (
        "cupy_equal", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->? VV->?"
    ),
    "exp": ("cupy_exp", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "exp2": ("cupy_exp2", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "expm1": ("cupy_expm1", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "fabs": ("cupy_fabs", 1, 1, "e->e E->E f->f d->d"),
    "float_power": ("cupy_float_power", 2, 1, "dd->d FF->D DD->D"),
    "floor": (
        "cupy_floor", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d"
    ),
    "floor_divide": (
        "cupy_floor_divide", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E ff->f "
        "dd->d"
    ),
    "fmax": (
        "cupy_fmax", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "fmin": (
        "cupy_fmin", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "fmod": (
        "cupy_fmod", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E ff->f "
        "dd->d"
    ),
    "frexp": ("cupy_frexp", 1, 2, "e->ei E->Ei f->fi d->di"),
    "gcd": (
        "cupy_gcd", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "greater": (
        "cupy_greater", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->?"
    ),
    "greater_equal": (
        "cupy_greater_equal", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->?"
    ),
    "heaviside": ("cupy_heaviside", 2, 1, "ee->e EE->E ff->f dd->d"),
    "hypot": ("cupy_hypot", 2, 1, "ee->e EE->E ff->f dd->d FF->F DD->D"),
    "invert": (
        "cupy_invert", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q"
    ),
    "isfinite": ("cupy_isfinite", 1, 1, "e->? E->? f->? d->? F->? D->?"),
    "isinf": ("cupy_isinf", 1, 1, "e->? E->? f->? d->? F->? D->?"),
    "isnan": ("cupy_isnan", 1, 1, "e->? E->? f->? d->? F->? D->?"),
    "lcm": (
        "cupy_lcm", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "ldexp": ("cupy_ldexp", 2, 1, "ei->e Ei->E fi->f el->e El->E fl->f di->d dq->d"),
    "left_shift": (
        "cupy_left_shift", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "less": (
        "cupy_less", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->?"
    ),
    "less_equal": (
        "cupy_less_equal", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->?"
    ),
    "log": ("cupy_log", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "log10": ("cupy_log10", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "log1p": ("cupy_log1p", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "log2": ("cupy_log2", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "logaddexp": ("cupy_logaddexp", 2, 1, "ee->e EE->E ff->f dd->d"),
    "logaddexp2": ("cupy_logaddexp2", 2, 1, "ee->e EE->E ff->f dd->d"),
    "logical_and": (
        "cupy_logical_and", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->?"
    ),
    "logical_not": (
        "cupy_logical_not", 1, 1,
        "?->? b->? B->? h->? H->? i->? I->? l->? L->? q->? Q->? e->? f->? d->?"
    ),
    "logical_or": (
        "cupy_logical_or", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->?"
    ),
    "logical_xor": (
        "cupy_logical_xor", 2, 1,
        "??->? bb->? BB->? hh->? HH->? ii->? II->? ll->? LL->? qq->? QQ->? ee->? ff->? "
        "dd->?"
    ),
    "maximum": (
        "cupy_maximum", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "minimum": (
        "cupy_minimum", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "mod": (
        "cupy_remainder", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E ff->f "
        "dd->d"
    ),
    "modf": ("cupy_modf", 1, 2, "e->ee E->EE f->ff d->dd"),
    "multiply": (
        "cupy_multiply", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "negative": (
        "cupy_negative", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F "
        "D->D"
    ),
    "nextafter": ("cupy_nextafter", 2, 1, "ee->e EE->E ff->f dd->d FF->F DD->D"),
    "not_equal": (
        "cupy_not_equal", 2, 1,
        "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->? FF->? DD->? VV->?"
    ),
    "positive": (
        "cupy_positive", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F "
        "D->D"
    ),
    "pow": (
        "cupy_power", 2, 1,
        "??->b bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "power": (
        "cupy_power", 2, 1,
        "??->b bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "rad2deg": ("cupy_rad2deg", 1, 1, "e->e E->E f->f d->d"),
    "radians": ("cupy_deg2rad", 1, 1, "e->e E->E f->f d->d"),
    "reciprocal": (
        "cupy_reciprocal", 1, 1,
        "b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F D->D"
    ),
    "remainder": (
        "cupy_remainder", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E ff->f "
        "dd->d"
    ),
    "right_shift": (
        "cupy_right_shift", 2, 1,
        "bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q"
    ),
    "rint": ("cupy_rint", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "sign": (
        "cupy_sign", 1, 1,
        "b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F D->D"
    ),
    "signbit": ("cupy_signbit", 1, 1, "e->? E->? f->? d->?"),
    "sin": ("cupy_sin", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "sinh": ("cupy_sinh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "sqrt": ("cupy_sqrt", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "square": (
        "cupy_square", 1, 1,
        "b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d F->F D->D"
    ),
    "subtract": (
        "cupy_subtract", 2, 1,
        "??->? bb->b BB->B hh->h HH->H ii->i II->I ll->l LL->L qq->q QQ->Q ee->e EE->E "
        "ff->f dd->d FF->F DD->D"
    ),
    "tan": ("cupy_tan", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "tanh": ("cupy_tanh", 1, 1, "e->e E->E f->f d->d F->F D->D"),
    "true_divide": (
        "cupy_true_divide", 2, 1,
        "qq->d qQ->d Qq->d QQ->d ee->e EE->E ff->f dd->d FF->F DD->D"
    ),
    "trunc": (
        "cupy_trunc", 1, 1,
        "?->? b->b B->B h->h H->H i->i I->I l->l L->L q->q Q->Q e->e E->E f->f d->d"
    ),
}  # fmt: skip

# `cupy._sorting.search._where_ufunc`
WHERE = (
    "???->? ?bb->b ?BB->B ?hh->h ?HH->H ?ii->i ?II->I ?ll->l ?LL->L ?qq->q ?QQ->Q ?ee->e ?ff->f "
    "?dd->d ?FF->F ?DD->D"
)
