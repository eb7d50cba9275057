import io

from callboard.cli.parts.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_where_nobody_looks() -> None:
    stream = io.StringIO()
    with Progress("work", 10, stream) as progress:
        progress.show(5)
    assert stream.getvalue() == ""


def test_a_terminal_sees_a_bar_that_is_gone_afterwards() -> None:
    stream = Terminal()
    with Progress("work", 10, stream) as progress:
        progress.show(5)
        assert stream.getvalue().endswith("work ███████████████░░░░░░░░░░░░░░░ 5/10")
    assert stream.getvalue().endswith("\r\x1b[K")


def test_an_unknown_total_is_counted() -> None:
    stream = Terminal()
    Progress("asks", stream=stream).show(7)
    assert stream.getvalue().endswith("asks 7")


def test_more_than_all_is_a_full_bar() -> None:
    stream = Terminal()
    Progress("work", 10, stream).show(15)
    assert "█" * 30 in stream.getvalue()
    assert "█" * 31 not in stream.getvalue()
