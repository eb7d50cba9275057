"""``python -m callboard``: the command line."""

from callboard.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
