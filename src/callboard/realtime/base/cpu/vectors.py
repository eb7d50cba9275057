"""What LLVM has and Numba has no name for; to be imported by modules that Numba compiles only."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

__all__ = ["LANES", "fetch", "lanes"]

LANES = 64


def _built(function: Callable[..., Any]) -> Any:
    """What compiled code calls: without the first parameter, which Numba gives it."""
    return intrinsic(function)


@_built
def lanes(_: Any) -> Any:
    """Room for ``LANES`` f32 on the stack of the function that calls this, until it returns.

    The compiler sees that no argument overlaps it. So a loop that reads arrays anywhere, and writes here, becomes
    vector code, which one that writes to an argument does not.
    """
    kind = types.Array(types.float32, 1, "C")

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        with builder.goto_entry_block():
            made = builder.alloca(ir.ArrayType(ir.FloatType(), LANES))
        array, number = make_array(kind)(context, builder), ir.IntType(64)
        data, size = builder.bitcast(made, ir.FloatType().as_pointer()), number(4)
        populate_array(array, data=data, shape=[number(LANES)], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()

    return kind(), build


@_built
def fetch(_: Any, array: Any, index: Any) -> Any:
    """Have an element of a row-major array brought into the cache, without waiting."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = make_array(signature.args[0])(context, builder, arguments[0])
        pointer, number = cgutils.voidptr_t, ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        at = builder.bitcast(builder.gep(held.data, [arguments[1]]), pointer)
        builder.call(instruction, [at, number(1), number(3), number(1)])  # to be written, kept near, data
        return context.get_dummy_value()

    return types.void(array, types.intp), build
