"""The command line, ``callboard``: one module or package for each command."""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code.

    Args:
        arguments: Instead of ``sys.argv[1:]``.
    """
    from callboard.cli.parser import run  # modules beside it are also programs of their own, which need none of it

    return run(arguments)
