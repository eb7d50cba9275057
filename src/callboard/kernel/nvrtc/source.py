"""``Source``: a CUDA C++ text and everything its compiled form depends on; and the NumPy body of a kernel."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from callboard.core.errors import ShapeError

__all__ = ["C_TYPES", "Compiled", "CppStandard", "Source", "source_of"]

C_TYPES = {
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f32": "float",
    "f64": "double",
    "c64": "float2",
    "c128": "double2",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "bool": "bool",
    "f8_e4m3": "__nv_fp8_e4m3",
    "f8_e5m2": "__nv_fp8_e5m2",
    "f4_e2m1": "__nv_fp4_e2m1",
}
"""CUDA C++ names of element types. ``cuda_fp16.h``, ``cuda_bf16.h`` and ``cuda_fp8.h`` declare the narrow ones."""

CppStandard = Literal["c++14", "c++17", "c++20"]
STANDARDS = ("c++14", "c++17", "c++20")


class Source(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A CUDA C++ text and how it is compiled.

    Attributes:
        text: The text.
        options: Compiler options besides architecture and standard.
        headers: ``(name, text)`` of files that it may include.
        include_paths: Folders that are searched for others.
        std: Language standard.
        lto: Compile to LTO-IR, link, and optimise across functions then.
        title: The name of the text in compiler messages.
        expressions: Kernels and variables whose names in the binary are wanted: ``"axpy<float>"``.
    """

    text: str
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    include_paths: tuple[str, ...] = ()
    std: str = "c++17"
    lto: bool = False
    title: str = "kernel.cu"
    expressions: tuple[str, ...] = ()


class Compiled(msgspec.Struct, array_like=True):
    """The result of compiling a source.

    Attributes:
        image: The binary, or PTX text.
        form: ``"CUBIN"``, ``"PTX"`` or ``"LTOIR"``.
        lowered: Name in the binary, by name expression.
        log: Output of the compiler: warnings.
    """

    image: bytes
    form: str
    lowered: dict[str, str]
    log: str

    def __repr__(self) -> str:
        return f"<{self.form} of {len(self.image)} bytes, {len(self.lowered)} names>"


def source_of(
    text: str,
    options: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    include_paths: Iterable[str] = (),
    std: CppStandard = "c++17",
    lto: bool = False,
    title: str = "kernel.cu",
    *,
    ftz: bool | None = None,
    max_registers: int | None = None,
    fast_math: bool = False,
) -> Source:
    """A source, checked.

    Args:
        text: CUDA C++.
        options: NVRTC options, for example ``("-lineinfo", "-DN=4")``; not the architecture, which the device
            determines, nor ``std``.
        headers: Texts by the names under which ``#include`` finds them.
        include_paths: Folders.
        std: Language standard.
        lto: Optimise at link time.
        title: Name in the compiler's messages.
        ftz: True if denormal f32 become 0; None: the compiler's default, no.
        max_registers: Upper bound of the registers of each thread.
        fast_math: Fast, less exact functions and divisions.

    Raises:
        TypeError: The source is not a str, or the options are not a sequence of str.
        ShapeError: An option that is decided elsewhere.
    """
    if not isinstance(text, str):
        raise TypeError(f"source is {type(text).__name__}; pass the text of a kernel in CUDA C++")
    if isinstance(options, str):
        raise TypeError(f"options is {options!r}; pass a sequence of them, ({options!r},)")
    given = tuple(options)
    for option in given:
        if not isinstance(option, str):
            raise TypeError(f"options: {option!r} is not a str")
        for prefix, cure in _ELSEWHERE.items():
            if option.startswith(prefix):
                raise ShapeError(f"options: {option}: {cure}")
    if std not in STANDARDS:
        raise ShapeError(f"std is {std!r}; use one of {', '.join(STANDARDS)}")
    if max_registers is not None and not 16 <= max_registers <= 255:
        raise ShapeError(f"max_registers is {max_registers}; a thread has 16 to 255")
    flags = [] if ftz is None else [f"--ftz={'true' if ftz else 'false'}"]
    flags += [] if max_registers is None else [f"--maxrregcount={max_registers}"]
    flags += ["--use_fast_math"] if fast_math else []
    files = tuple((str(name), str(body)) for name, body in (headers or {}).items())
    return Source(text, (*flags, *given), files, tuple(map(str, include_paths)), std, bool(lto), title)


_ELSEWHERE = {
    "--gpu-architecture": "the device says the architecture",
    "-arch": "the device says the architecture",
    "--std": "pass std=",
    "-std": "pass std=",
    "-dlto": "pass lto=True",
    "--dlink-time-opt": "pass lto=True",
}
