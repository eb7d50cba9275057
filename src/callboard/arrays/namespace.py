"""``Namespace``: the Python array API standard 2025.12 over the refs of one device (``dev.xp``)."""

from typing import TYPE_CHECKING, Any

from callboard.arrays import (
    creation,
    dtypes,
    elementwise,
    manipulation,
    statistics,
)
from callboard.arrays.creation import Creation
from callboard.arrays.fourier import Fourier
from callboard.arrays.handles import check_array, check_device
from callboard.arrays.indexing import access
from callboard.arrays.introspection.info import Info
from callboard.arrays.introspection.unknown import unknown
from callboard.arrays.linalg.namespace import LinearAlgebra
from callboard.arrays.ordering import membership, searching, sorting
from callboard.arrays.products import contracting
from callboard.arrays.products.einsum import einsum
from callboard.core.dtype import DTYPES
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.naming import naming
from callboard.events.once import once

__all__ = ["Namespace"]


@naming("xp", but={*elementwise.UNARY, *elementwise.BINARY})
class Namespace(Creation[Mode]):
    """The functions of the array API standard, on one device: ``dev.xp``, ``ref.__array_namespace__()``.

    Functions of arrays compute on their device. Results are refs, returned at once even if their inputs are still being
    computed. See docs/guides/arrays.md.
    """

    __array_api_version__ = "2025.12"

    e = 2.718281828459045
    inf = float("inf")
    nan = float("nan")
    newaxis = None
    pi = 3.141592653589793

    _apply = staticmethod(elementwise.apply)
    """An expression of arrays and numbers, which becomes a part of the op that reads it, as the functions below do."""

    # dtypes
    bool = DTYPES["bool"]
    int8 = DTYPES["i8"]
    int16 = DTYPES["i16"]
    int32 = DTYPES["i32"]
    int64 = DTYPES["i64"]
    uint8 = DTYPES["u8"]
    uint16 = DTYPES["u16"]
    uint32 = DTYPES["u32"]
    uint64 = DTYPES["u64"]
    float16 = DTYPES["f16"]
    bfloat16 = DTYPES["bf16"]
    float32 = DTYPES["f32"]
    float64 = DTYPES["f64"]
    complex64 = DTYPES["c64"]
    complex128 = DTYPES["c128"]

    # data types
    astype = staticmethod(dtypes.astype)
    can_cast = staticmethod(dtypes.can_cast)
    finfo = staticmethod(dtypes.finfo)
    iinfo = staticmethod(dtypes.iinfo)
    isdtype = staticmethod(dtypes.isdtype)
    result_type = staticmethod(dtypes.result_type)

    # arrays like others
    empty_like = staticmethod(creation.empty_like)
    full_like = staticmethod(creation.full_like)
    meshgrid = staticmethod(creation.meshgrid)
    ones_like = staticmethod(creation.ones_like)
    tril = staticmethod(creation.tril)
    triu = staticmethod(creation.triu)
    zeros_like = staticmethod(creation.zeros_like)

    # manipulation
    broadcast_arrays = staticmethod(manipulation.broadcast_arrays)
    broadcast_shapes = staticmethod(manipulation.broadcast_shapes)
    broadcast_to = staticmethod(manipulation.broadcast_to)
    concat = staticmethod(manipulation.concat)
    expand_dims = staticmethod(manipulation.expand_dims)
    flip = staticmethod(manipulation.flip)
    matrix_transpose = staticmethod(manipulation.matrix_transpose)
    moveaxis = staticmethod(manipulation.moveaxis)
    permute_dims = staticmethod(manipulation.permute_dims)
    repeat = staticmethod(manipulation.repeat)
    reshape = staticmethod(manipulation.reshape)
    roll = staticmethod(manipulation.roll)
    squeeze = staticmethod(manipulation.squeeze)
    stack = staticmethod(manipulation.stack)
    tile = staticmethod(manipulation.tile)
    unstack = staticmethod(manipulation.unstack)

    # indexing
    take = staticmethod(access.take)
    take_along_axis = staticmethod(access.take_along_axis)

    # elements
    abs = staticmethod(elementwise.abs)
    acos = staticmethod(elementwise.acos)
    acosh = staticmethod(elementwise.acosh)
    add = staticmethod(elementwise.add)
    asin = staticmethod(elementwise.asin)
    asinh = staticmethod(elementwise.asinh)
    atan = staticmethod(elementwise.atan)
    atan2 = staticmethod(elementwise.atan2)
    atanh = staticmethod(elementwise.atanh)
    bitwise_and = staticmethod(elementwise.bitwise_and)
    bitwise_invert = staticmethod(elementwise.bitwise_invert)
    bitwise_left_shift = staticmethod(elementwise.bitwise_left_shift)
    bitwise_or = staticmethod(elementwise.bitwise_or)
    bitwise_right_shift = staticmethod(elementwise.bitwise_right_shift)
    bitwise_xor = staticmethod(elementwise.bitwise_xor)
    ceil = staticmethod(elementwise.ceil)
    clip = staticmethod(elementwise.clip)
    conj = staticmethod(elementwise.conj)
    copysign = staticmethod(elementwise.copysign)
    cos = staticmethod(elementwise.cos)
    cosh = staticmethod(elementwise.cosh)
    divide = staticmethod(elementwise.divide)
    equal = staticmethod(elementwise.equal)
    exp = staticmethod(elementwise.exp)
    expm1 = staticmethod(elementwise.expm1)
    floor = staticmethod(elementwise.floor)
    floor_divide = staticmethod(elementwise.floor_divide)
    greater = staticmethod(elementwise.greater)
    greater_equal = staticmethod(elementwise.greater_equal)
    hypot = staticmethod(elementwise.hypot)
    imag = staticmethod(elementwise.imag)
    isfinite = staticmethod(elementwise.isfinite)
    isinf = staticmethod(elementwise.isinf)
    isnan = staticmethod(elementwise.isnan)
    less = staticmethod(elementwise.less)
    less_equal = staticmethod(elementwise.less_equal)
    log = staticmethod(elementwise.log)
    log10 = staticmethod(elementwise.log10)
    log1p = staticmethod(elementwise.log1p)
    log2 = staticmethod(elementwise.log2)
    logaddexp = staticmethod(elementwise.logaddexp)
    logical_and = staticmethod(elementwise.logical_and)
    logical_not = staticmethod(elementwise.logical_not)
    logical_or = staticmethod(elementwise.logical_or)
    logical_xor = staticmethod(elementwise.logical_xor)
    maximum = staticmethod(elementwise.maximum)
    minimum = staticmethod(elementwise.minimum)
    multiply = staticmethod(elementwise.multiply)
    negative = staticmethod(elementwise.negative)
    nextafter = staticmethod(elementwise.nextafter)
    not_equal = staticmethod(elementwise.not_equal)
    positive = staticmethod(elementwise.positive)
    pow = staticmethod(elementwise.pow)
    real = staticmethod(elementwise.real)
    reciprocal = staticmethod(elementwise.reciprocal)
    remainder = staticmethod(elementwise.remainder)
    round = staticmethod(elementwise.round)
    sign = staticmethod(elementwise.sign)
    signbit = staticmethod(elementwise.signbit)
    sin = staticmethod(elementwise.sin)
    sinh = staticmethod(elementwise.sinh)
    sqrt = staticmethod(elementwise.sqrt)
    square = staticmethod(elementwise.square)
    subtract = staticmethod(elementwise.subtract)
    tan = staticmethod(elementwise.tan)
    tanh = staticmethod(elementwise.tanh)
    trunc = staticmethod(elementwise.trunc)
    where = staticmethod(elementwise.where)

    # statistics
    all = staticmethod(statistics.all)
    any = staticmethod(statistics.any)
    count_nonzero = staticmethod(statistics.count_nonzero)
    cumulative_prod = staticmethod(statistics.cumulative_prod)
    cumulative_sum = staticmethod(statistics.cumulative_sum)
    diff = staticmethod(statistics.diff)
    max = staticmethod(statistics.max)
    mean = staticmethod(statistics.mean)
    min = staticmethod(statistics.min)
    prod = staticmethod(statistics.prod)
    std = staticmethod(statistics.std)
    sum = staticmethod(statistics.sum)
    var = staticmethod(statistics.var)

    # products
    einsum = staticmethod(einsum)
    matmul = staticmethod(contracting.matmul)
    tensordot = staticmethod(contracting.tensordot)
    vecdot = staticmethod(contracting.vecdot)

    # searching
    argmax = staticmethod(searching.argmax)
    argmin = staticmethod(searching.argmin)
    nonzero = staticmethod(searching.nonzero)
    searchsorted = staticmethod(searching.searchsorted)

    # sorting and sets
    isin = staticmethod(membership.isin)
    argsort = staticmethod(sorting.argsort)
    sort = staticmethod(sorting.sort)
    unique_all = staticmethod(sorting.unique_all)
    unique_counts = staticmethod(sorting.unique_counts)
    unique_inverse = staticmethod(sorting.unique_inverse)
    unique_values = staticmethod(sorting.unique_values)

    linalg = LinearAlgebra()

    @once
    def fft(self) -> Fourier[Mode]:
        """Fourier transforms."""
        return Fourier(self)

    @property
    def __name__(self) -> str:
        return f"callboard.xp.{self._device}"

    def __array_namespace_info__(self) -> Info:
        """The parts of the standard that this device supports: dtypes, defaults, capabilities."""
        return Info(self._device)

    def __repr__(self) -> str:
        return f"<array namespace of {self._device}>"

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            raise unknown("xp", name, dir(type(self)))

    # -- for the operators of refs -------------------------------------------------------------------------------------

    _assign = staticmethod(access.assign)
    _by_arrays = staticmethod(access.by_arrays)
    _write_into = staticmethod(elementwise.write_into)

    def _to_device(self, x: GpuRef[Any], device: str) -> GpuRef[Any]:
        check_device(self._device, device)
        return check_array("to_device", "x", x)
