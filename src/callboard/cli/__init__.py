"""The command line, ``callboard``: demo, doctor, bench, coverage."""

from callboard.cli.main import main

__all__ = ["main"]
