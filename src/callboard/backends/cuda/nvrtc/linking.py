"""nvJitLink: LTO-IR, PTX, cubins and fatbins, linked to one binary."""

from collections.abc import Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable, LibraryError

__all__ = ["FORMS", "form_of", "link", "load_nvjitlink"]

FORMS = {"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR", "fatbin": "FATBIN", "object": "OBJECT", "library": "LIBRARY"}
"""Linkable formats, by nvJitLink's names; ``"any"`` detects the format."""

LTOIR_MAGIC = b"\xed\x43\x4e\x7f"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
ELF_MAGIC = b"\x7fELF"


def load_nvjitlink() -> Any:
    """NVIDIA's binding of nvJitLink.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception as e:  # as for NVRTC
        raise BackendUnavailable(f'nvJitLink cannot be loaded: {e}; pip install "callboard[cuda13]"') from e
    return nvjitlink


def form_of(image: bytes) -> str:
    """The format of an image, from its first bytes: a name of :data:`FORMS`.

    Raises:
        LibraryError: None of them.
    """
    if image.startswith(LTOIR_MAGIC):
        return "ltoir"
    if image.startswith(FATBIN_MAGIC):
        return "fatbin"
    if image.startswith(ELF_MAGIC):
        return "cubin"
    if image.startswith(b"!<arch>"):
        return "library"
    if b".version" in image[:4096]:
        return "ptx"
    raise LibraryError(f"{image[:16]!r}… is not a cubin, PTX, fatbin, LTO-IR or library", "nvjitlink")


def link(inputs: Sequence[tuple[str, bytes]], target: str, options: Sequence[str] = ()) -> bytes:
    """One cubin of several inputs.

    Args:
        inputs: Names, for messages, and images.
        target: ``"sm_90a"``.
        options: Options of nvJitLink besides the architecture.

    Raises:
        BackendUnavailable: nvJitLink is not installed.
        LibraryError: It refuses; with its log.
    """
    nvjitlink = load_nvjitlink()
    forms = [form_of(image) for _, image in inputs]
    flags = [f"-arch={target}", *(["-lto"] if "ltoir" in forms else []), *options]
    try:
        handle = nvjitlink.create(len(flags), flags)
    except Exception as e:  # of the binding, which has its own class
        raise LibraryError(f"nvJitLink takes no options {' '.join(flags)}: {e}", "nvjitlink") from e
    try:
        for (name, image), form in zip(inputs, forms, strict=True):
            kind = getattr(nvjitlink.InputType, FORMS[form])
            nvjitlink.add_data(handle, kind, image, len(image), name)
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    except Exception as e:  # likewise
        log = bytearray(max(nvjitlink.get_error_log_size(handle), 1))
        nvjitlink.get_error_log(handle, log)
        said = bytes(log).rstrip(b"\0 \n").decode(errors="replace")
        raise LibraryError(f"nvJitLink refuses {', '.join(n for n, _ in inputs)}: {said or e}", "nvjitlink") from e
    finally:
        nvjitlink.destroy(handle)
