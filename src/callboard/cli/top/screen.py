"""The terminal: keys in, the view's lines out, until the user leaves or the application ends."""

import contextlib
import curses
from typing import Any

from callboard.cli.top.source import Source
from callboard.cli.top.view import View

__all__ = ["show"]

KEYS = {
    curses.KEY_UP: "up",
    curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right",
    curses.KEY_DOWN: "down",
    curses.KEY_ENTER: "enter",
    curses.KEY_BTAB: "tab",
    10: "enter",
    13: "enter",
    9: "tab",
    27: "escape",
}


def show(source: Source, interval: float) -> None:
    """Show an application; a key is followed at once, new figures come after ``interval`` seconds.

    Raises:
        OSError: The application has ended.
        curses.error: There is no terminal that can be drawn on.
    """
    curses.wrapper(_loop, source, interval)


def _loop(screen: Any, source: Source, interval: float) -> None:
    with contextlib.suppress(curses.error):  # some terminals have no invisible cursor
        curses.curs_set(0)
    view, before, now = View(), None, source.snapshot()
    while True:
        height, width = screen.getmaxyx()
        screen.erase()
        for at, line in enumerate(view.lines(now, before, width - 1, height)):
            with contextlib.suppress(curses.error):  # the window has become smaller meanwhile
                screen.addstr(at, 0, line, curses.A_BOLD if at == 0 else curses.A_NORMAL)
        screen.refresh()
        screen.timeout(max(1, round(interval * 1000)))
        key = screen.getch()
        if key == -1:
            before, now = now, source.snapshot()
        elif key != curses.KEY_RESIZE:
            view.key(KEYS.get(key, chr(key) if 0 < key < 128 else ""))
            if view.done:
                return
