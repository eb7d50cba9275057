"""A fused product on the stand-ins, compared with its reference."""

from typing import Any

import numpy as np
from blas_lab import place_matrix, values
from blas_lt_lab import BACKWARD, BGRAD, answer, aux_for, check, expected, message, turned, wide

from callboard.core.dtype import DTYPES


def product(session: Any, epilogue: str, dtype_name: str, **options: Any) -> None:
    """One product, compared with its reference."""
    dtype = DTYPES[dtype_name]
    m, n, k = options.pop("extents", (5, 11, 7))
    batch, layout, extra = options.pop("batch", ()), options.pop("layout", "rows"), options.pop("extra", {})
    transpose_a, transpose_b = options.pop("transposes", (False, False))
    alpha, beta = options.pop("factors", (1.0, 0.0))
    a = values(dtype, (*batch, *((k, m) if transpose_a else (m, k))), 1)
    b = values(dtype, (k, n), 2).T if transpose_b else values(dtype, (k, n), 2)
    c = values(dtype, (*batch, m, n), 3) if beta else None
    bias = values(dtype, (n,), 4) if "bias" in epilogue else None
    operands: dict[str, Any] = {} if bias is None else {"bias": session.put(bias)}
    aux = None
    if epilogue in BACKWARD or epilogue in BGRAD[:2]:
        kept, aux = aux_for(epilogue, (*batch, m, n), dtype, 5)
        operands["aux"] = session.put(kept)
    as_given = [
        session.put(np.array(x, dtype.np if dtype.name == "f64" else "f4")) if extra else x for x in (alpha, beta)
    ]
    op = message(epilogue)(
        a=place_matrix(session, a, layout).ref,
        b=place_matrix(session, np.ascontiguousarray(b), layout).ref,
        c=None if c is None else session.put(c),
        alpha=as_given[0],
        beta=as_given[1],
        epilogue=epilogue,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        **operands,
        **options,
    )
    want = expected(
        epilogue,
        turned(wide(a), transpose_a),
        turned(wide(b), transpose_b),
        c=None if c is None else wide(c),
        alpha=alpha,
        beta=beta,
        bias=None if bias is None else wide(bias),
        aux=aux,
    )
    check(epilogue, answer(session, op), want, dtype, dtype, k)
