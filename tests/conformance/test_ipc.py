"""Memory shared with other processes: what is exported, and what cannot be opened."""

from typing import Any

import msgspec
import numpy as np
import pytest

from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.kernel.ipc import Empty, GetMemHandle, IpcMemHandle, OpenMemHandle
from callboard.kernel.memory import Fill


def exported(session: Any, *, rows: slice = slice(None)) -> IpcMemHandle:
    x = session.submit(Empty(shape=(4, 5), dtype="f64"))
    session.submit(Fill(out=x, fill_value=1.5))
    np.testing.assert_array_equal(session.get(x), np.full((4, 5), 1.5))
    handle = session.submit(GetMemHandle(x=x[rows]))
    assert isinstance(handle, IpcMemHandle)
    return handle


def test_a_handle_names_the_array(session: Any) -> None:
    handle = exported(session, rows=slice(1, 3))
    assert (handle.dtype, handle.shape, handle.offset, handle.nbytes) == ("f64", (2, 5), 40, 160)
    assert IpcMemHandle.from_bytes(handle.as_bytes()) == handle


def test_what_cannot_be_exported_is_refused(session: Any) -> None:
    x = session.submit(Empty(shape=(4, 5)))
    with pytest.raises(ShapeError, match="it must be contiguous"):
        session.submit(GetMemHandle(x=x[:, 1:]))
    with pytest.raises(UnsupportedOp, match=r"make it with dev\.ipc\.empty"):
        session.submit(GetMemHandle(x=session.put(np.zeros(3))))
    with pytest.raises(ShapeError, match="extents are >= 0"):
        session.submit(Empty(shape=(2, -1)))


def test_what_is_no_handle_is_refused_at_the_call(session: Any) -> None:
    handle = exported(session)
    for wrong in (
        b"nonsense",
        msgspec.structs.replace(handle, shape=(4, 6)).as_bytes(),
        msgspec.structs.replace(handle, offset=8).as_bytes(),
        msgspec.structs.replace(handle, dtype="f99").as_bytes(),
    ):
        with pytest.raises(ShapeError, match="are not an IpcMemHandle"):
            session.submit(OpenMemHandle(handle=wrong.hex()))
