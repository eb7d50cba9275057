"""``scripts/release``: what it decides, without building or installing."""

import hashlib
from pathlib import Path

import pytest

from devtools.release import checksums, chosen, version_problems

LOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-11-28

### Added

- One.

## [0.1.0] - 2026-10-01
"""
EXTRAS: dict[str, list[str]] = {name: [] for name in ("cuda13", "dev", "serve", "test")}


def test_a_version_that_can_be_released() -> None:
    assert version_problems("0.2.0", LOG, ["v0.1.0"]) == []


@pytest.mark.parametrize(
    "version, changed, tags, says",
    [
        ("0.3.0", LOG, [], "no section for 0.3.0"),
        ("0.1.0", LOG, [], "0.2.0 is newer than 0.1.0"),
        ("0.2.0", LOG, ["v0.2.0"], "the tag v0.2.0 exists"),
        ("0.2.0", LOG.replace(" - 2026-11-28", ""), [], "has no date"),
        ("0.2.0", LOG.replace("[Unreleased]\n", "[Unreleased]\n\n- Two.\n"), [], "[Unreleased] is not empty"),
    ],
)
def test_what_keeps_a_version_back(version: str, changed: str, tags: list[str], says: str) -> None:
    (problem,) = version_problems(version, changed, tags)
    assert says in problem


def test_the_extras_for_users_by_default() -> None:
    assert chosen(EXTRAS, None) == ["cuda13", "serve"]
    assert chosen(EXTRAS, "dev") == ["dev"]
    assert chosen(EXTRAS, "") == []
    with pytest.raises(ValueError, match="no extra srve"):
        chosen(EXTRAS, "srve")


def test_checksums_as_sha256sum_reads_them(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"two")
    (tmp_path / "a.tar.gz").write_bytes(b"one")
    one, two = (hashlib.sha256(data).hexdigest() for data in (b"one", b"two"))
    assert checksums(tmp_path) == f"{one}  a.tar.gz\n{two}  b.whl\n"
