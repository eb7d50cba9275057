"""What workers need is made by one of them; the file is there when ``made_once`` returns."""

import sys
from pathlib import Path

import pytest
from tests.once import made_once
from tests.together import together


@pytest.mark.skipif(sys.platform == "win32", reason="without a lock several may make it")
def test_several_wait_for_the_one_that_makes_it(tmp_path: Path) -> None:
    path, made = tmp_path / "kept.txt", []

    def make(file: Path) -> None:
        made.append(file.name)
        file.write_text("whole")

    def wanted() -> str:
        return made_once(path, make).read_text()

    assert together(wanted, [()] * 8) == ["whole"] * 8
    assert made == ["kept.txt"]


def test_what_fails_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"

    def fails(file: Path) -> None:
        file.write_text("half")
        raise ArithmeticError("cannot be made")

    with pytest.raises(ArithmeticError):
        made_once(path, fails)
    assert not path.exists()
    assert made_once(path, lambda file: file.write_text("whole")).read_text() == "whole"
