"""How a ref is shown: as NumPy shows an array at a prompt and in ``print``, as a table or a picture in a notebook."""

import base64
import html
import struct
import zlib
from typing import Any

import numpy as np

from callboard.core.reply import FAILED

__all__ = ["displayed", "html_of", "printed", "shown"]

WAIT = 0.2
"""Seconds that a notebook, or IPython, waits for a small array of a blocking device."""

CELLS = 20
"""Rows and columns of a table of values."""
SHOWN = 100
"""Values of a text; of more, those at the edges."""
PICTURE = 16
"""The least extent of an array that is shown as a picture."""
PIXELS = 128
"""The largest extent of a picture."""


def shown(ref: Any) -> str | None:
    """The values of a small array that is ready, as NumPy's ``repr`` has them; None if there are none to show."""
    if not ref._port.services.blocking or hasattr(ref.layout, "extents"):  # extents that depend on data would wait
        return None
    values = ref._port.services.preview(ref)
    return None if values is None or values.shape != ref.layout.shape else _as_numpy(ref, values)


def displayed(ref: Any) -> str:
    """As ``repr``; a small array of a blocking device is computed, and waited for, for ``WAIT`` at most."""
    values = ref._port.services.preview(ref, wait=True, within=WAIT) if ref._port.services.blocking else None
    if values is not None:
        return _as_numpy(ref, values)
    return f"{ref!r}\n{failure}" if (failure := _failure(ref)) else repr(ref)


def _failure(ref: Any) -> str:
    """The error of a ref whose op has failed; empty if it has not."""
    if ref._state != FAILED:
        return ""
    error = ref._outcome.cause.error(ref._outcome.op)
    return f"{type(error).__name__}: {error}"


def _as_numpy(ref: Any, values: "np.ndarray[Any, Any]") -> str:
    return f"{np.array_repr(values)[:-1]}, device={ref.device!r})"


def printed(ref: Any) -> str | None:
    """The values of a small array, as NumPy prints them; waits for them. None if there are none to show."""
    if not ref._port.services.blocking:
        return None
    values = ref._port.services.preview(ref, wait=True)
    return None if values is None else str(values if values.ndim else values[()])


def html_of(ref: Any) -> str:
    """A ref as HTML: shape, dtype and state, and its values: a table, a picture, or the first ones as text.

    A small array of a blocking device is computed, and waited for, for ``WAIT`` at most. Otherwise, displaying a ref
    computes nothing and waits for nothing. Values are copied to the host only up to the device's ``preview``, and for a
    picture.
    """
    values = ref._port.services.preview(ref, wait=True, within=WAIT) if ref._port.services.blocking else None
    layout = ref.layout
    state = ref._told().rpartition(", ")[2].rstrip(">")
    rows = {"device": ref.device, "state": state}
    known = not hasattr(layout, "extents")  # reading extents that depend on data would wait for them
    if failure := _failure(ref):
        rows["error"] = failure
    rows["array"] = repr(layout)
    if known:
        rows["bytes"] = f"{layout.nbytes:,}"
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table>{cells}</table>{_values(ref, values) if known else ''}"


def _values(ref: Any, values: "np.ndarray[Any, Any] | None") -> str:
    picture = _picture(ref) or ""
    if values is None:
        values = ref._port.services.preview(ref)
    if values is None:
        return picture
    if values.ndim == 2 and values.size and values.shape == ref.layout.shape and max(values.shape) <= CELLS:
        lines = ("".join(f"<td>{html.escape(_text(x))}</td>" for x in line) for line in values)
        return f"{picture}<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    text = np.array2string(values, threshold=SHOWN)
    part = "\n… of which these are the first" if values.shape != ref.layout.shape else ""
    return f"{picture}<pre>{html.escape(text + part)}</pre>"


def _text(x: Any) -> str:
    return np.array2string(np.asarray(x))


# -- pictures ----------------------------------------------------------------------------------------------------------


def _picture(ref: Any) -> str | None:
    """A thumbnail of an image, or None: of a matrix, or of rows of pixels with 3 or 4 colours."""
    shape = ref.layout.shape
    coloured = len(shape) == 3 and shape[2] in (3, 4)
    if not (len(shape) == 2 or coloured) or min(shape[:2]) < PICTURE or ref.dtype.is_complex:
        return None
    steps = [-(-n // PIXELS) for n in shape[:2]]
    values = ref._port.services.preview(ref[:: steps[0], :: steps[1]], most=PIXELS * PIXELS * 4)
    if values is None:
        return None
    data = base64.b64encode(_png(_bytes(values))).decode()
    return f'<img alt="{html.escape(repr(ref.layout))}" src="data:image/png;base64,{data}"/>'


def _bytes(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Bytes as they are; other numbers from black, the least one, to white."""
    if values.dtype == np.uint8:
        return values
    numbers = values.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    scaled = (numbers - low) / ((high - low) or 1.0) * 255
    return np.nan_to_num(scaled, nan=0.0, posinf=255.0, neginf=0.0).astype(np.uint8)


def _png(pixels: "np.ndarray[Any, Any]") -> bytes:
    """A picture in the PNG format: grey, red-green-blue, or with transparency."""
    rows, columns = pixels.shape[:2]
    kind = {2: 0, 3: 2, 4: 6}[2 if pixels.ndim == 2 else pixels.shape[2]]
    lines = np.ascontiguousarray(pixels).reshape(rows, -1)
    raw = np.concatenate([np.zeros((rows, 1), np.uint8), lines], axis=1).tobytes()

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
