"""Expressions that come again and again, as machine code by the C compiler of the machine.

A compiler runs beside the work, which NumPy does until then; the bits are the same, so the change is not seen. Where
there is no compiler, or it fails, NumPy goes on.
"""

import functools
import logging
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Sequence
from typing import Any

from callboard.backends.cpu.elementwise.blocks import Walk
from callboard.backends.cpu.elementwise.compiling import Compiled, Compiling
from callboard.backends.cpu.elementwise.csource import c_source
from callboard.kernel.elementwise.program import Program

__all__ = ["Native", "compiler"]

VARIABLE = "CALLBOARD_CPU_COMPILER"
AGAIN = 50
"""Runs of a plan before it is compiled."""
MOST = 128
"""Texts that a process compiles."""

_log = logging.getLogger("callboard.cpu")


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """Path and first options of the C compiler; None if there is none.

    It is what ``CALLBOARD_CPU_COMPILER`` names (a command, also with options: ``gcc -m64``), else ``cc``; none on
    ``off``. A name that is no program is logged.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given == "off" or not sys.platform.startswith("linux"):
        return None
    try:
        name, *options = shlex.split(given) or ["cc"]
    except ValueError as e:
        name, options = given, []
        reason = str(e)
    else:
        reason = "no such program"
    path = shutil.which(name)
    if path is None:
        if given:
            _log.warning("%s=%s: %s; expressions stay with NumPy. Name a C compiler, or `off`", VARIABLE, given, reason)
        return None
    return (path, *options)


@functools.cache
def compiling(process: int) -> Compiling | None:
    """What compiles in the process of this id, the running one; None without a compiler."""
    by = compiler()
    return None if by is None else Compiling(by, MOST)


class Native:
    """The machine code of a plan, once it has come often.

    Args:
        program: The computation.
        walk: Axes and steps of the operands and of the results.
        itemsizes: Bytes of an element of each.
        erf: NumPy computes ``erf`` as the machine code does.
    """

    def __init__(self, program: Program, walk: Walk, itemsizes: Sequence[int], erf: bool = False) -> None:
        self._program = program
        self._walk = walk
        self._erf = erf
        self._runs = 0
        self._compiled: Compiled | None = None
        self._addresses = struct.Struct(f"{len(itemsizes)}q")
        self._numbers = struct.Struct(f"{len(program.numbers)}d")
        steps = [step for array in walk.steps for step in array]
        self._geometry = struct.pack(f"{len(walk.shape) + len(steps)}q", *walk.shape, *steps)
        self._misplaced = [size - 1 for size in itemsizes]

    def run(self, arrays: Sequence[int], numbers: Sequence[Any]) -> bool:
        """Compute it, if it has been compiled; says whether it has.

        Args:
            arrays: Addresses of the operands and the results; no result is an operand.
            numbers: The numbers, rounded to their dtypes.
        """
        found = self._compiled
        if found is None:
            self._runs += 1
            if self._runs == AGAIN:
                self._ask()
            return False
        if found.run is None or any(at & mask for at, mask in zip(arrays, self._misplaced, strict=True)):
            return False
        found.run(self._addresses.pack(*arrays), self._geometry, self._numbers.pack(*numbers))
        return True

    def _ask(self) -> None:
        by = compiling(os.getpid())
        source = c_source(self._program, self._walk.steps, self._erf) if by is not None else None
        if by is not None and source is not None:
            self._compiled = by.ask(source)
