"""The methods of ``dev.nvrtc``."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from callboard.core.mode import Mode
from callboard.kernel.api import Api
from callboard.kernel.nvrtc.compile import Compile, Inspect
from callboard.kernel.nvrtc.decorated import Kernel
from callboard.kernel.nvrtc.handles import Program
from callboard.kernel.nvrtc.launch import Launch
from callboard.kernel.nvrtc.source import CppStandard, source_of

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Kernels of the user's own."""

    __slots__ = ()

    covers = frozenset({"compile", "inspect", "launch"})

    def run(self, kernel: Kernel, *args: Any, **named: Any) -> Any:
        """Launch a kernel of :func:`callboard.kernel` on this device: ``dev.nvrtc.run(step, x, 0.1)``.

        Equivalent to ``step(x, 0.1)``, which finds the device from its arrays. In a resident actor,
        ``ctx.device.nvrtc.run`` also accepts arrays of torch, CuPy and NumPy.
        """
        return kernel.answer(self._submit(kernel.op(*args, **named)))

    def compile(
        self,
        text: str,
        *,
        expressions: Iterable[str] = (),
        options: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        include_paths: Iterable[str] = (),
        std: CppStandard = "c++17",
        lto: bool = False,
        ftz: bool | None = None,
        max_registers: int | None = None,
        fast_math: bool = False,
        title: str = "kernel.cu",
        form: Literal["binary", "ptx", "ltoir"] = "binary",
    ) -> Program:
        """Compile CUDA C++ for this device: ``program = dev.nvrtc.compile(text)``, ``program.kernel("step", "...")``.

        It returns at once; ``await program`` waits, and returns the binary, the names in it and the compiler's log. The
        compiler runs on separate threads, so several programs are compiled at once while other ops continue. Programs
        are cached on disk (``CALLBOARD_CACHE_DIR``), keyed by everything that affects their compilation.

        Args:
            text: CUDA C++. ``#include <callboard/hopper.cuh>`` finds callboard's header.
            expressions: Kernels whose names in the binary are wanted: ``("axpy<float>",)``.
            options, headers, include_paths, std, lto, ftz, max_registers, fast_math, title: See
                :func:`callboard.kernel.nvrtc.source.source_of`.
            form: Form of the awaited result: the binary that this device loads, ``"ptx"`` text, or ``"ltoir"`` for
                ``dev.module.link``.

        Raises:
            TypeError, ShapeError: An argument is wrong; names it.
            UnsupportedOp: On a CPU, which has no compiler; :func:`callboard.kernel` has a NumPy body for it.
        """
        source = source_of(
            text,
            options,
            headers,
            include_paths,
            std,
            lto,
            title,
            ftz=ftz,
            max_registers=max_registers,
            fast_math=fast_math,
        )
        source = msgspec.structs.replace(source, expressions=tuple(expressions))
        return Program(self._submit, Launch, Inspect, source, self._submit(Compile(source=source, form=form)))
