"""``View``: what is shown, as lines of text; pure, so that it can be tested without a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from callboard.cli.top.tables import TABLES, Column, Row, Table
from callboard.telemetry.sampling.snapshot import BlueprintFigures, DeviceFigures, Snapshot

__all__ = ["HELP", "View"]

HELP = "q: quit · 1-6 or Tab: table · arrows: select, columns · Enter: details · s: sort by next column · r: reverse"


@dataclass
class View:
    """The state of the screen.

    Attributes:
        table: Number of the table.
        sort: Column that each table is sorted by, None: the order of the application.
        reverse: Small values first, by table.
        selected: Number of the selected row.
        left: Columns behind the first one that are left out, for narrow terminals.
        details: The selected row is shown in full.
        done: The user has left.
    """

    table: int = 0
    sort: dict[int, int | None] = field(default_factory=dict)
    reverse: dict[int, bool] = field(default_factory=dict)
    selected: int = 0
    left: int = 0
    details: bool = False
    done: bool = False

    def key(self, name: str) -> None:
        """Follow a key: its character, or its name.

        Args:
            name: ``"up"``, ``"down"``, ``"left"``, ``"right"``, ``"enter"``, ``"escape"``, ``"tab"``, or a character.
        """
        columns = len(TABLES[self.table].columns)
        if name in ("q", "\x03"):
            self.done = True
        elif name == "escape":
            self.details = False
        elif name == "enter":
            self.details = not self.details
        elif name == "tab" or (name.isdecimal() and 1 <= int(name) <= len(TABLES)):
            self.table = (self.table + 1) % len(TABLES) if name == "tab" else int(name) - 1
            self.selected, self.left, self.details = 0, 0, False
        elif name == "s":
            now = self.sort.get(self.table)
            self.sort[self.table] = 0 if now is None else (now + 1) % columns
        elif name == "r":
            self.reverse[self.table] = not self.reverse.get(self.table, False)
        elif name in ("up", "down"):
            self.selected = max(0, self.selected + (1 if name == "down" else -1))
        elif name in ("left", "right"):
            self.left = min(columns - 2, max(0, self.left + (1 if name == "right" else -1)))

    def rows(self, now: Snapshot, before: Snapshot | None) -> list[Row]:
        """The rows of the present table, in order."""
        table = TABLES[self.table]
        rows = list(table.rows(now, before))
        column = self.sort.get(self.table)
        if column is not None:
            numbers = table.columns[column].right
            known = [row for row in rows if row.values[column] is not None]
            known.sort(key=lambda row: row.values[column], reverse=numbers != self.reverse.get(self.table, False))
            rows = known + [row for row in rows if row.values[column] is None]
        return rows

    def lines(self, now: Snapshot, before: Snapshot | None, width: int, height: int) -> list[str]:
        """The screen: at most ``height`` lines of at most ``width`` characters."""
        rows = self.rows(now, before)
        self.selected = min(self.selected, max(0, len(rows) - 1))
        lost = sum(device.losses for device in now.devices)
        head = [
            f"{now.system} on {now.node}, process {now.pid}: {len(now.devices)} devices ({lost} losses), "
            f"{len(now.actors)} actors, {len(now.blueprints)} servers, {sum(now.dead_letters.values())} dead letters"
            + (f", {now.ring.dropped} events dropped" if now.ring.dropped else ""),
            "  ".join(
                f"[{number}{'*' if number - 1 == self.table else ''} {each.name}]"
                for number, each in enumerate(TABLES, 1)
            ),
            "",
        ]
        room = max(1, height - len(head) - 2)
        if self.details and rows:
            body = _details(TABLES[self.table], rows[self.selected], now)[:room]
        else:
            body = _grid(TABLES[self.table], rows, self.sort.get(self.table), self.selected, room, self.left)
        lines = [*head, *body]
        lines += [""] * (height - 1 - len(lines))
        return [_plain(line)[:width] for line in [*lines[: height - 1], HELP]]


def _plain(text: str) -> str:
    """What does not move the cursor: names and errors may hold any character."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )


def _grid(table: Table, rows: list[Row], sort: int | None, selected: int, room: int, left: int) -> list[str]:
    cells = [[column.text(value) for column, value in zip(table.columns, row.values, strict=True)] for row in rows]
    names = [column.name + ("v" if at == sort else "") for at, column in enumerate(table.columns)]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    first = max(0, selected - room + 2)

    def line(cells: list[str], mark: str) -> str:
        return _line((table.columns[0], *table.columns[left + 1 :]), [cells[0], *cells[left + 1 :]], seen, mark)

    seen = [widths[0], *widths[left + 1 :]]
    shown = [line(names, "  ")]
    for at, each in enumerate(cells[first : first + room - 1], first):
        shown.append(line(each, "> " if at == selected else "  "))
    if not rows:
        shown.append(f"  no {table.name}")
    return shown


def _line(columns: tuple[Column, ...], cells: list[str], widths: list[int], mark: str) -> str:
    padded = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    )
    return (mark + "  ".join(padded)).rstrip()


def _details(table: Table, row: Row, now: Snapshot) -> list[str]:
    lines = [f"  {column.name}: {column.text(value)}" for column, value in zip(table.columns, row.values, strict=True)]
    wholes: dict[str, Sequence[DeviceFigures | BlueprintFigures]] = {"devices": now.devices, "servers": now.blueprints}
    of_table = wholes.get(table.name, ())
    for whole in (one for one in of_table if one.name == row.key):
        lines.append("")
        lines += [
            f"  {line}" for line in msgspec.json.format(msgspec.json.encode(whole), indent=2).decode().splitlines()
        ]
    return lines
