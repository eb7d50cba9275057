"""Operations of ``dev.managed``: managed memory.

A managed array has one address for device and host, and its pages migrate to where they are used. Every op accepts
managed arrays like other arrays.
"""

from callboard.kernel.managed.actor import ManagedAllocatorActor
from callboard.kernel.managed.messages import Advice, Advise, Allocate, Location, Prefetch

__all__ = ["Advice", "Advise", "Allocate", "Location", "ManagedAllocatorActor", "Prefetch"]
