"""Sequence numbers of a stream that is asked whether it is idle."""

from typing import Any, cast

from callboard.device.host.context.timelines import Timeline


class Event:
    def query(self) -> bool:
        return False  # whatever is asked of it later must not count any more


class Stream:
    """Records events, and is idle when it is told to be."""

    def __init__(self) -> None:
        self.idle = False
        self.recycled: list[Event] = []

    def record(self) -> Event:
        return Event()

    def query(self) -> bool:
        return self.idle

    def recycle(self, event: Event) -> None:
        self.recycled.append(event)


def test_an_idle_stream_has_done_all_and_gives_its_events_back() -> None:
    stream = Stream()
    timeline = Timeline(cast(Any, stream))
    for _ in range(2):
        timeline.issued += 1
        timeline.record_event()
    timeline.issued += 1
    assert not timeline.poll_idle()
    assert (timeline.completed, len(timeline.events)) == (0, 2)
    stream.idle = True
    assert timeline.poll_idle()
    assert timeline.completed == timeline.recorded == timeline.issued == 3
    assert (len(stream.recycled), len(timeline.events)) == (2, 0)
    assert not timeline.poll()  # nothing is left to be found
