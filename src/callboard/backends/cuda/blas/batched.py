"""Many products in one call: how strided, pointer and grouped batches are called."""

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.blas.addresses import AddressArray
from callboard.backends.cuda.blas.level2 import matrix_at
from callboard.backends.cuda.blas.level3 import added, aligned_for_i8, where_aligned
from callboard.backends.cuda.blas.products import (
    ALGO_DEFAULT,
    Product,
    Steps,
    Types,
    gemm_run,
    kernel_run,
    product_of,
    steps_of,
    types_of,
)
from callboard.backends.cuda.blas.scalars import Factor, factor_of, pointers
from callboard.backends.cuda.plans import nothing
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.blas import GemmBatched, GemmGrouped, GemmStridedBatched

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["grouped", "pointer_batched", "strided_batched", "strided_run"]

INT32 = range(-(2**31) + 1, 2**31)


def one_of(stack: Layout) -> Layout:
    """Layout of one matrix of a stack."""
    return layout_of(stack.dtype, stack.shape[1:], stack.strides[1:])


def step_of(stack: Layout) -> int:
    """Distance of the matrices of a stack; 0 if there is only one, for all."""
    return stack.strides[0] if stack.shape[0] > 1 else 0


def stack_steps(stack: Layout, transpose: bool) -> Steps:
    return steps_of(one_of(stack), transpose)._replace(batch=step_of(stack))


@plans(GemmStridedBatched, inline=True)
def strided_batched(cublas: "Cublas", op: GemmStridedBatched) -> "Run":
    """``run(a, b, out, c, alpha, beta)``."""
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    batch, m, n = out.shape
    k = op.a.shape[1] if op.transpose_a else op.a.shape[2]
    if out.size == 0:
        return nothing
    types = types_of(dtype, op.tf32)
    factors = (factor_of(op.alpha, types.scale), factor_of(op.beta, types.scale))
    kernel = None
    if k == 0 or dtype.name == "i8":
        kernel = kernel_run(
            cublas,
            dtype,
            (m, n, k),
            stack_steps(op.a.layout, op.transpose_a),
            stack_steps(op.b.layout, op.transpose_b),
            None if op.c is None else stack_steps(op.c.layout, False),
            stack_steps(out, False),
            factors,
            conj=(op.conj_a, op.conj_b),
            batch=batch,
        )
        if k == 0:
            return kernel
    product = _slice_product(op, op.a.layout, op.b.layout, out)
    steps = (step_of(op.a.layout), step_of(op.b.layout), step_of(out))
    run = added(cublas, strided_run(cublas, types, product, steps, batch, factors), op.c, out, op.beta)
    if kernel is None:
        return run
    ints = (product.m, product.n, k, product.ld_first, product.ld_second, *steps[:2])
    return where_aligned(run, kernel) if aligned_for_i8(*ints) else kernel


def _slice_product(op: GemmStridedBatched, a: Layout, b: Layout, out: Layout) -> Product:
    form_a, form_b, form = (matrix_at(one_of(stack)) for stack in (a, b, out))
    return product_of(a.dtype, form_a, form_b, form, (op.transpose_a, op.transpose_b), (op.conj_a, op.conj_b))


def strided_run(
    cublas: "Cublas",
    types: Types,
    product: Product,
    steps: tuple[int, int, int],
    batch: int,
    factors: tuple[Factor, Factor],
) -> "Run":
    """``run(a, b, out, alpha, beta)``: ``batch`` products, whose operands are ``steps`` elements apart."""
    op1, op2, m, n, k, ld1, ld2, ld_out, swapped = product
    step_a, step_b, step_out = steps
    step1, step2 = (step_b, step_a) if swapped else (step_a, step_b)
    fn = cublas.function("gemm_strided_batched_ex", m, n, k, ld1, ld2, ld_out, batch)
    head = (cublas.handle, op1, op2, m, n, k)
    factor, result, compute = types.factor, types.result, types.compute
    hand = pointers(cublas, factors)

    def run(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        first, second = (b, a) if swapped else (a, b)
        fn(
            *(*head, p_alpha, first, factor, ld1, step1, second, factor, ld2, step2),
            *(p_beta, out, result, ld_out, step_out, batch, compute, ALGO_DEFAULT),
        )

    return run


# -- pointers ----------------------------------------------------------------------------------------------------------


@plans(GemmBatched)
def pointer_batched(cublas: "Cublas", op: GemmBatched) -> "Run":
    """``run(a, b, out, c, alpha, beta)``."""
    dtype = op.a[0].dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    batch = out.shape[0]
    a, b = op.a[0].layout, op.b[0].layout
    k = a.shape[0] if op.transpose_a else a.shape[1]
    if out.size == 0:
        return nothing
    types = types_of(dtype, op.tf32)
    factors = (factor_of(op.alpha, types.scale), factor_of(op.beta, types.scale))
    step = step_of(out) * out.dtype.itemsize
    form_out = matrix_at(one_of(out))
    flags = (op.transpose_a, op.transpose_b), (op.conj_a, op.conj_b)
    if k == 0 or dtype.name == "i8":
        c_step = 0 if op.c is None else step_of(op.c.layout) * out.dtype.itemsize
        single = _single_i8_or_empty(
            cublas, op, (a, b, one_of(out)), None if op.c is None else one_of(op.c.layout), factors
        )

        def one_by_one(a: list[int], b: list[int], out: int, c: int | None, alpha: Any, beta: Any) -> None:
            for i in range(batch):
                single(a[i], b[i], out + i * step, None if c is None else c + i * c_step, alpha, beta)

        return one_by_one
    product = product_of(dtype, matrix_at(a), matrix_at(b), form_out, *flags)
    return added(cublas, _pointer_run(cublas, types, product, step, batch, factors), op.c, out, op.beta)


def _single_i8_or_empty(
    cublas: "Cublas",
    op: GemmBatched | GemmGrouped,
    layouts: tuple[Layout, Layout, Layout],
    c: Layout | None,
    factors: tuple[Factor, Factor],
) -> "Run":
    """One product by the kernel: of i8, which batches of cuBLAS do not take, or of an inner extent of 0."""
    a, b, out = layouts
    k = a.shape[0] if op.transpose_a else a.shape[1]
    return kernel_run(
        cublas,
        a.dtype,
        (out.shape[0], out.shape[1], k),
        steps_of(a, op.transpose_a),
        steps_of(b, op.transpose_b),
        None if c is None else steps_of(c),
        steps_of(out),
        factors,
        conj=(op.conj_a, op.conj_b),
    )


def _pointer_run(
    cublas: "Cublas", types: Types, product: Product, step: int, batch: int, factors: tuple[Factor, Factor]
) -> "Run":
    op1, op2, m, n, k, ld1, ld2, ld_out, swapped = product
    fn = cublas.function("gemm_batched_ex", m, n, k, ld1, ld2, ld_out, batch)
    head = (cublas.handle, op1, op2, m, n, k)
    factor, result, compute = types.factor, types.result, types.compute
    hand = pointers(cublas, factors)
    array = AddressArray(cublas, 3 * batch)
    firsts = array.address
    seconds, outs = firsts + 8 * batch, firsts + 16 * batch

    def run(a: list[int], b: list[int], out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        first, second = (b, a) if swapped else (a, b)
        array.write([*first, *second, *range(out, out + step * batch, step)] if step else [*first, *second, out])
        fn(
            *(*head, p_alpha, firsts, factor, ld1, seconds, factor, ld2),
            *(p_beta, outs, result, ld_out, batch, compute, ALGO_DEFAULT),
        )

    return run


# -- groups ------------------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Products of one shape."""

    product: Product
    members: list[int]


@plans(GemmGrouped)
def grouped(cublas: "Cublas", op: GemmGrouped) -> "Run":
    """``run(a, b, c, alpha, beta)``.

    One call for all where cuBLAS has it (real floats, factors from the host); else one call each.
    """
    dtype = op.a[0].dtype
    types = types_of(dtype, op.tf32)
    factors = (factor_of(op.alpha, types.scale), factor_of(op.beta, types.scale))
    groups: dict[Product, list[int]] = {}
    singles: list[tuple[int, Run]] = []
    together = not dtype.is_complex and dtype.name != "i8" and not any(f.is_array for f in factors)
    for i, (a, b, c) in enumerate(zip(op.a, op.b, op.c, strict=True)):
        if c.size == 0:
            continue
        forms = (matrix_at(a.layout), matrix_at(b.layout), matrix_at(c.layout))
        product = product_of(dtype, *forms, (op.transpose_a, op.transpose_b), (op.conj_a, op.conj_b))
        if product.k == 0 or dtype.name == "i8":
            singles.append((i, _single(cublas, op, i, factors)))
        elif together and all(n in INT32 for n in product[2:8]):
            groups.setdefault(product, []).append(i)
        else:
            gemm = gemm_run(cublas, types, product, factors)
            singles.append((i, _in_place(gemm)))
    at_once = None
    if groups:
        at_once = _grouped_run(cublas, types, [Group(p, members) for p, members in groups.items()])

    def run(a: list[int], b: list[int], c: list[int], alpha: Any, beta: Any) -> None:
        if at_once is not None:
            at_once(a, b, c, alpha, beta)
        for i, single in singles:
            single(a[i], b[i], c[i], c[i], alpha, beta)

    return run


def _single(cublas: "Cublas", op: GemmGrouped, i: int, factors: tuple[Factor, Factor]) -> "Run":
    c = op.c[i].layout
    return _single_i8_or_empty(cublas, op, (op.a[i].layout, op.b[i].layout, c), c, factors)


def _in_place(gemm: "Run") -> "Run":
    return lambda a, b, out, c, alpha, beta: gemm(a, b, out, alpha, beta)


def _grouped_run(cublas: "Cublas", types: Types, groups: list[Group]) -> "Run":
    count = len(groups)
    members = [i for group in groups for i in group.members]
    swapped = [group.product.swapped for group in groups for _ in group.members]
    total = len(members)

    def ints(*values: int) -> "ctypes.Array[ctypes.c_int]":
        return (ctypes.c_int * count)(*values)

    columns = [ints(*(group.product[field] for group in groups)) for field in range(8)]
    sizes = ints(*(len(group.members) for group in groups))
    op1, op2, m, n, k, ld1, ld2, ld_out = map(ctypes.addressof, columns)
    at_sizes = ctypes.addressof(sizes)
    number = ctypes.c_double if types.scale.name == "f64" else ctypes.c_float
    alphas, betas = (number * count)(), (number * count)()
    at_alphas, at_betas = ctypes.addressof(alphas), ctypes.addressof(betas)
    array = AddressArray(cublas, 3 * total)
    firsts = array.address
    seconds, outs = firsts + 8 * total, firsts + 16 * total
    handle, fn = cublas.handle, cublas.library.gemm_grouped_batched_ex
    factor, result, compute = types.factor, types.result, types.compute
    order = list(zip(members, swapped, strict=True))

    def run(a: list[int], b: list[int], c: list[int], alpha: float, beta: float) -> None:
        if cublas.mode != 0:
            cublas.point(0)
        alphas[:] = [alpha] * count
        betas[:] = [beta] * count
        first = [b[i] if swap else a[i] for i, swap in order]
        second = [a[i] if swap else b[i] for i, swap in order]
        array.write([*first, *second, *(c[i] for i in members)])
        fn(
            *(handle, op1, op2, m, n, k, at_alphas, firsts, factor, ld1, seconds, factor, ld2),
            *(at_betas, outs, result, ld_out, count, at_sizes, compute),
        )

    run.keeps = columns, sizes, alphas, betas  # type: ignore[attr-defined] # cuBLAS is given their addresses
    return run
