"""``need``: for programs that are started with any Python. Older ones have to be able to read this file."""

import sys
from importlib.util import find_spec

__all__ = ["need"]


def need(script, extras, *packages):  # type: ignore[no-untyped-def]
    """End the process with status 2 and one line that says what to do, if this interpreter cannot run a program.

    Args:
        script: The program, ``scripts/gpu-check``.
        extras: Those of callboard that bring what it needs, ``test,cuda13``; ``""`` if callboard itself does.
        packages: Some of those that it needs, which stand for the rest.
    """
    absent = [name for name in packages if find_spec(name) is None]
    if sys.version_info < (3, 11):  # noqa: UP036
        why = f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old, 3.11 or later is needed"
    elif absent:
        why = f"{sys.executable} has no package {absent[0]}"
    else:
        return
    what = f"-e '.[{extras}]'" if extras else "-e ."
    install = f"python3 -m venv .venv && .venv/bin/pip install {what}"
    sys.stderr.write(f"{script}: {why}; run {install}, then .venv/bin/python {script}\n")
    sys.exit(2)
