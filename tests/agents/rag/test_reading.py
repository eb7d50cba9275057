"""The documents of a folder, and what is left out of it."""

import logging
from pathlib import Path

import pytest

import callboard as cb


def test_a_warning_names_what_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("A text.\r\nTwo lines.")
    (tmp_path / "b.txt").write_bytes("Fähre".encode("latin-1"))
    (tmp_path / "c.md").write_bytes(b"x" * ((4 << 20) + 1))
    (tmp_path / "d.rst").write_bytes(b"a\0b")
    (tmp_path / "e.txt").write_text("")
    (tmp_path / "f.bin").write_bytes(b"\xff")
    with caplog.at_level(logging.WARNING, "callboard.agents.rag"):
        found = cb.documents_in(tmp_path)
    assert [(one.source, one.text) for one in found] == [("a.txt", "A text.\nTwo lines.")]
    said = "b.txt (not UTF-8; convert it), c.md (above 4 MiB), d.rst (it has NUL characters)"
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path}: 3 files are left out: {said}"]


def test_a_single_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"b\.txt: not UTF-8; convert it"):
        cb.documents_in(path)
