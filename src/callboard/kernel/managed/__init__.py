"""Operations of ``dev.managed``: managed memory.

Arrays that device and host both reach by one address; their pages move to where they are used. Every op takes them as
any other array.
"""

from callboard.kernel.managed.actor import ManagedAllocatorActor
from callboard.kernel.managed.messages import Advice, Advise, Allocate, Location, Prefetch

__all__ = ["Advice", "Advise", "Allocate", "Location", "ManagedAllocatorActor", "Prefetch"]
