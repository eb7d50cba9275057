"""The command line, ``callboard``: demo, doctor, bench."""

from callboard.cli.main import main

__all__ = ["main"]
