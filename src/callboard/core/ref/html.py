"""The display of a ref in a notebook."""

import html
from typing import Any

import numpy as np

__all__ = ["html_of"]


def html_of(ref: Any) -> str:
    """A ref as HTML: shape, dtype and state, and its first values if the device was opened with ``preview``.

    Displaying a ref computes nothing and waits for nothing. Values are copied to the host only up to the device's
    ``preview``.
    """
    layout = ref.layout
    state = repr(ref).rpartition(", ")[2].rstrip(">")
    rows = {"device": ref.device, "state": state}
    known = not hasattr(layout, "extents")  # reading extents that depend on data would wait for them
    rows["array"] = repr(layout)
    if known:
        rows["bytes"] = f"{layout.nbytes:,}"
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    values = ref._port.services.preview(ref) if known else None
    shown = "" if values is None else f"<pre>{html.escape(_text(values, values.shape != layout.shape))}</pre>"
    return f"<table>{cells}</table>{shown}"


def _text(values: "np.ndarray[Any, Any]", part: bool) -> str:
    text = np.array2string(values, threshold=values.size + 1)
    return f"{text}\n… of which these are the first" if part else text
