"""The command line, ``callboard``: one module or package for each command."""

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code.

    Args:
        arguments: Instead of ``sys.argv[1:]``.
    """
    # Modules beside this one are also programs of their own, which need nothing of what follows.
    try:
        if (sys.argv[1:] if arguments is None else arguments)[:1] == ["serve"]:
            from callboard.cli.serving.rolls import rolls

            rolls.remember()
        from callboard.cli.parts.streams import open_missing

        open_missing()
        from callboard.cli.parser import run

        return run(arguments)
    except KeyboardInterrupt:  # imports take a second or more
        return 128 + signal.SIGINT
