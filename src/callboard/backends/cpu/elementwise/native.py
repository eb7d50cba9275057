"""Expressions that come again and again, as machine code by the C compiler of the machine.

A compiler runs beside the work, which NumPy does until then; the bits are the same, so the change is not seen. Where
there is no compiler, or it fails, NumPy goes on.
"""

import contextlib
import ctypes
import functools
import logging
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from callboard.backends.cpu.elementwise.blocks import Walk
from callboard.backends.cpu.elementwise.csource import c_source
from callboard.kernel.elementwise.program import Program

__all__ = ["Native", "compiler"]

VARIABLE = "CALLBOARD_CPU_COMPILER"
OPTIONS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC", "-x", "c")
AGAIN = 50
"""Runs of a plan before it is compiled."""
MOST = 128
"""Texts that a process compiles."""
SECONDS = 60.0
"""Time of the compiler for one of them."""

_log = logging.getLogger("callboard.cpu")
_one = threading.Lock()
_known: "dict[str, Compiled]" = {}


@functools.cache
def compiler() -> str | None:
    """The C compiler: the one that ``CALLBOARD_CPU_COMPILER`` names, else cc; None if there is none, or on ``off``."""
    given = os.environ.get(VARIABLE, "").strip()
    if given == "off" or not sys.platform.startswith("linux"):
        return None
    return shutil.which(given or "cc")


class Compiled:
    """A text, and its function as soon as it has been compiled.

    Attributes:
        run: ``run(addresses, geometry, numbers)``; None until then, and for good if it cannot be compiled.
    """

    def __init__(self, source: str, by: str) -> None:
        self.run: Callable[..., Any] | None = None
        threading.Thread(target=self._compile, args=(source, by), name="callboard-compiler", daemon=True).start()

    def _compile(self, source: str, by: str) -> None:
        # A folder that is not there any more when the process ends, whichever way: the code is mapped then
        with _one, contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="callboard-") as folder:
            made = Path(folder, "expression.so")
            try:
                subprocess.run(
                    [by, *OPTIONS, "-o", str(made), "-", "-lm"],
                    input=source.encode(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=SECONDS,
                    check=True,
                )
                run = ctypes.CDLL(str(made)).run
            except (OSError, subprocess.SubprocessError) as e:
                _log.warning("an expression stays with NumPy: %s: %s", e, getattr(e, "stderr", b"") or "")
                return
            run.restype = None
            run.argtypes = (ctypes.c_char_p,) * 3
            self.run = run


class Native:
    """The machine code of a plan, once it has come often.

    Args:
        program: The computation.
        walk: Axes and steps of the operands and of the results.
        itemsizes: Bytes of an element of each.
    """

    def __init__(self, program: Program, walk: Walk, itemsizes: Sequence[int]) -> None:
        self._program = program
        self._walk = walk
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
        by = compiler()
        source = c_source(self._program, self._walk.steps) if by is not None else None
        if by is None or source is None:
            return
        found = _known.get(source)
        if found is None and len(_known) < MOST:
            found = _known[source] = Compiled(source, by)
        self._compiled = found
