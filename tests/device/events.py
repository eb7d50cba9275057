"""Events by name, for ops that wait for the test and tell when they ran."""

import threading

__all__ = ["Events"]


class Events(dict[str, threading.Event]):
    """Each is made when it is first named. A ``defaultdict`` may make two where two threads name it at once."""

    def __missing__(self, name: str) -> threading.Event:
        return self.setdefault(name, threading.Event())
