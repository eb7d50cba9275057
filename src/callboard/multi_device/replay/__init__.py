"""Recording of inputs that cannot be repeated, and their replay: the harness, its journals, its reports."""

from callboard.multi_device.replay.driver import Replay
from callboard.multi_device.replay.errors import (
    JournalConflict,
    JournalCorrupt,
    JournalFailed,
    NotRecordable,
    ReplayDiverged,
)
from callboard.multi_device.replay.harness import ReplayHarness, ReplayMode
from callboard.multi_device.replay.journals.file import FileJournal
from callboard.multi_device.replay.journals.memory import MemoryJournal
from callboard.multi_device.replay.journals.postgres import PostgresJournal
from callboard.multi_device.replay.journals.protocol import Journal, Recovered
from callboard.multi_device.replay.journals.redis import RedisJournal
from callboard.multi_device.replay.journals.sqlite import SqliteJournal
from callboard.multi_device.replay.report import Divergence, ReplayReport, Step
from callboard.multi_device.replay.writer import JournalStats

__all__ = [
    "Divergence",
    "FileJournal",
    "Journal",
    "JournalConflict",
    "JournalCorrupt",
    "JournalFailed",
    "JournalStats",
    "MemoryJournal",
    "NotRecordable",
    "PostgresJournal",
    "Recovered",
    "RedisJournal",
    "Replay",
    "ReplayDiverged",
    "ReplayHarness",
    "ReplayMode",
    "ReplayReport",
    "SqliteJournal",
    "Step",
]
