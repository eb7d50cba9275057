"""Operations of ``dev.ipc``: memory of other processes.

One process makes an array that can be shared and exports it; another opens the handle and has the array, without a
copy. Also between the devices of a machine that reach each other's memory. Events order what they do with it.
"""

from callboard.kernel.ipc.actor import IpcActor
from callboard.kernel.ipc.messages import Empty, GetMemHandle, IpcMemHandle, OpenMemHandle

__all__ = ["Empty", "GetMemHandle", "IpcActor", "IpcMemHandle", "OpenMemHandle"]
