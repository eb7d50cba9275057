"""callboard: typed, supervised actors for accelerator libraries, and arrays that know when their context was lost.

::

    import asyncio, numpy as np, callboard as cb


    async def main() -> None:
        async with cb.device("auto") as gpu:
            a = gpu.put(np.random.rand(512, 512).astype("f4"))
            print(await gpu.blas.gemm(a, a).get())


    asyncio.run(main())

Importing this package has no side effects and loads no vendor package; names are loaded on first use.
"""

import importlib
import logging
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard import sync, xp
    from callboard.actors import (
        Actor,
        ActorRef,
        ActorStopped,
        ActorSystem,
        AllForOne,
        Backoff,
        Directive,
        Mailbox,
        Msg,
        OneForOne,
        Props,
        Request,
        Terminated,
    )
    from callboard.core.dtype import DType, DTypeLike, as_dtype
    from callboard.core.errors import (
        AccelError,
        AskTimeout,
        BackendUnavailable,
        ContextLost,
        ContextPoisoned,
        DeviceMismatch,
        DeviceStopped,
        DriverError,
        GpuRefStale,
        LibraryError,
        MailboxFull,
        NumericalError,
        OutOfMemory,
        RemoteError,
        ReplyError,
        ShapeError,
        Unrecoverable,
        UnsupportedOp,
        Withdrawn,
    )
    from callboard.core.op import Op
    from callboard.core.operand import In, InOut, Out, Scalar
    from callboard.core.ref import AccelRef, GpuRef, GpuToken
    from callboard.core.reply import Reply
    from callboard.device.client.graphs import Recording, RecordingStats
    from callboard.device.client.handle import Device
    from callboard.device.client.line.status import MemoryPoolStats, ResidentState, TraceRecord
    from callboard.device.client.memory.pinned import PinnedBuffer, PinnedBufferPool, PinnedStats
    from callboard.device.client.residents.ref import ResidentRef
    from callboard.device.client.residents.stream import Stream
    from callboard.device.config import DeviceConfig, HostConfig
    from callboard.device.protocol.residents.actor import HostContext, ResidentActor
    from callboard.device.supervision.supervisor import DeviceSupervisor
    from callboard.device.supervision.watch import Lost, Recovered, Stopped
    from callboard.kernel.dnn.rnn.params import RnnParams
    from callboard.kernel.elementwise.calls import Elementwise, ElementwiseMany, elementwise, reduction
    from callboard.kernel.event.handle import DeviceTime, Event
    from callboard.kernel.event.messages import IpcEventHandle
    from callboard.kernel.ipc.messages import IpcMemHandle
    from callboard.kernel.nvrtc import Kernel, TensorMap, kernel, tensor_map
    from callboard.multi_device.placement import (
        Candidate,
        DeviceChoice,
        NoEligibleDevice,
        PlacementActor,
        PlacementHints,
        PlacementPolicy,
    )
    from callboard.multi_device.replay import (
        Divergence,
        FileJournal,
        Journal,
        JournalConflict,
        JournalCorrupt,
        JournalFailed,
        JournalStats,
        MemoryJournal,
        NotRecordable,
        PostgresJournal,
        RedisJournal,
        ReplayDiverged,
        ReplayHarness,
        ReplayMode,
        ReplayReport,
        SqliteJournal,
    )
    from callboard.multi_device.sharding import EntityRef, PlacementShardingAdapter, RegionStopped
    from callboard.multi_device.topology import P2pGraph, P2pTopology
    from callboard.multi_device.worlds import (
        Collective,
        PreMulSum,
        World,
        WorldHealth,
        WorldStats,
        WorldStopped,
        world,
    )
    from callboard.patterns.batching.continuous.policy import Preemption
    from callboard.patterns.batching.continuous.server import ContinuousBatchingServer, ContinuousStats
    from callboard.patterns.batching.continuous.steps import DONE, NOTHING, Last, Slot
    from callboard.patterns.batching.sequences.server import SequenceBatchingServer, SequenceStats
    from callboard.patterns.batching.sequences.slots import SequenceLost, SequenceSlot
    from callboard.patterns.batching.server import BatchingStats, DynamicBatchingServer
    from callboard.patterns.batching.settings import Dispatch, pow2_length
    from callboard.patterns.cascade.calibration import Calibration
    from callboard.patterns.cascade.drift import Drift, DriftAlarm
    from callboard.patterns.cascade.server import CascadeReply, CascadeStats, InferenceCascade
    from callboard.patterns.cascade.stages import CascadeStage
    from callboard.patterns.contract.options import RequestOptions
    from callboard.patterns.fairshare.server import FairShareScheduler
    from callboard.patterns.fairshare.settings import FairOverflow, Tenant, UnknownTenant
    from callboard.patterns.fairshare.stats import FairShareStats, TenantStats
    from callboard.patterns.hotswap.canary import Canary
    from callboard.patterns.hotswap.errors import SwapFailed, SwapInProgress, UnknownVersion
    from callboard.patterns.hotswap.memory import DeviceMemory, MemoryKept
    from callboard.patterns.hotswap.results import HotSwapReply, HotSwapStats, SwapReport
    from callboard.patterns.hotswap.server import ModelHotSwapServer
    from callboard.patterns.hotswap.versions import ModelVersion, VersionState, VersionStats
    from callboard.patterns.moe.dispatch import CapacityPolicy
    from callboard.patterns.moe.errors import BadExpertResult, BadGate
    from callboard.patterns.moe.gate import Score, TopK
    from callboard.patterns.moe.results import MoeResult, MoeStats
    from callboard.patterns.moe.server import MoeRouter
    from callboard.patterns.pipeline.errors import ItemError
    from callboard.patterns.pipeline.executor import PipelineExecutor, PipelineStats
    from callboard.patterns.pipeline.stage import PipelineStage
    from callboard.patterns.pipeline.streams import END, PipelineSink, gpu_stage, run_collect, source_from_unbounded
    from callboard.patterns.quarantine.errors import Quarantined
    from callboard.patterns.quarantine.guard import Quarantine, QuarantineStats
    from callboard.patterns.replicas.autoscale import Autoscale
    from callboard.patterns.replicas.ejection import Ejection
    from callboard.patterns.replicas.errors import NoReplica
    from callboard.patterns.replicas.hedging import Hedging
    from callboard.patterns.replicas.picking import ReplicaLoad, ReplicaPolicy
    from callboard.patterns.replicas.replica import Replica
    from callboard.patterns.replicas.server import ModelReplicaPool
    from callboard.patterns.replicas.stats import PoolStats, ReplicaStats
    from callboard.patterns.requests.errors import (
        BadBatchResult,
        DeadlineExceeded,
        ItemTooLarge,
        QueueFull,
        ServerStopped,
        SlowReader,
    )
    from callboard.patterns.requests.waiting import OverflowPolicy
    from callboard.patterns.speculative.drafts import Draft, Proposal
    from callboard.patterns.speculative.figures import SpeculativeStats
    from callboard.patterns.speculative.modeldraft import ModelDraft
    from callboard.patterns.speculative.models import Cacheless, KvState, LanguageModel, Model, TokenState
    from callboard.patterns.speculative.ngram import NGramDraft
    from callboard.patterns.speculative.requests import Decode, Decoded
    from callboard.patterns.speculative.sampling import Acceptance
    from callboard.patterns.speculative.server import SpeculativeDecoder
    from callboard.retry import request_key, retrying
    from callboard.serve.http.starting import serve
    from callboard.support import supports
    from callboard.system import System, device

    __version__: str
    """Of the installed distribution, ``"0+unknown"`` for a source tree that is not installed."""

_NAMES = {
    "callboard.actors": (
        "Actor",
        "ActorRef",
        "ActorStopped",
        "ActorSystem",
        "AllForOne",
        "Backoff",
        "Directive",
        "Mailbox",
        "Msg",
        "OneForOne",
        "Props",
        "Request",
        "Terminated",
    ),
    "callboard.core.dtype": ("DType", "DTypeLike", "as_dtype"),
    "callboard.core.errors": (
        "AccelError",
        "AskTimeout",
        "BackendUnavailable",
        "ContextLost",
        "ContextPoisoned",
        "DeviceMismatch",
        "DeviceStopped",
        "DriverError",
        "GpuRefStale",
        "LibraryError",
        "MailboxFull",
        "NumericalError",
        "OutOfMemory",
        "RemoteError",
        "ReplyError",
        "ShapeError",
        "Unrecoverable",
        "UnsupportedOp",
        "Withdrawn",
        "WorldLost",
    ),
    "callboard.core.op": ("Op",),
    "callboard.core.operand": ("In", "InOut", "Out", "Scalar"),
    "callboard.core.ref": ("AccelRef", "GpuRef", "GpuToken"),
    "callboard.core.reply": ("Reply",),
    "callboard.device.config": ("DeviceConfig", "HostConfig"),
    "callboard.device.client.graphs": ("Recording", "RecordingStats"),
    "callboard.device.client.handle": ("Device",),
    "callboard.device.client.line.status": ("MemoryPoolStats", "ResidentState", "TraceRecord"),
    "callboard.device.client.memory.pinned": ("PinnedBuffer", "PinnedBufferPool", "PinnedStats"),
    "callboard.device.protocol.residents.actor": ("HostContext", "ResidentActor"),
    "callboard.device.client.residents.ref": ("ResidentRef",),
    "callboard.device.client.residents.stream": ("Stream",),
    "callboard.device.supervision.supervisor": ("DeviceSupervisor",),
    "callboard.device.supervision.watch": ("Lost", "Recovered", "Stopped"),
    "callboard.multi_device.placement": (
        "Candidate",
        "DeviceChoice",
        "NoEligibleDevice",
        "PlacementActor",
        "PlacementHints",
        "PlacementPolicy",
    ),
    "callboard.multi_device.replay": (
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
        "RedisJournal",
        "ReplayDiverged",
        "ReplayHarness",
        "ReplayMode",
        "ReplayReport",
        "SqliteJournal",
    ),
    "callboard.multi_device.sharding": ("EntityRef", "PlacementShardingAdapter", "RegionStopped"),
    "callboard.multi_device.topology": ("P2pGraph", "P2pTopology"),
    "callboard.multi_device.worlds": (
        "Collective",
        "PreMulSum",
        "World",
        "WorldHealth",
        "WorldStats",
        "WorldStopped",
        "world",
    ),
    "callboard.kernel.event.handle": ("DeviceTime", "Event"),
    "callboard.kernel.event.messages": ("IpcEventHandle",),
    "callboard.kernel.ipc.messages": ("IpcMemHandle",),
    "callboard.kernel.dnn.rnn.params": ("RnnParams",),
    "callboard.kernel.elementwise.calls": ("Elementwise", "ElementwiseMany", "elementwise", "reduction"),
    "callboard.kernel.nvrtc": ("Kernel", "TensorMap", "tensor_map"),
    "callboard.patterns.batching.server": ("BatchingStats", "DynamicBatchingServer"),
    "callboard.patterns.batching.settings": ("Dispatch", "pow2_length"),
    "callboard.patterns.cascade.calibration": ("Calibration",),
    "callboard.patterns.cascade.server": ("CascadeReply", "CascadeStats", "InferenceCascade"),
    "callboard.patterns.cascade.stages": ("CascadeStage",),
    "callboard.patterns.requests.errors": (
        "BadBatchResult",
        "DeadlineExceeded",
        "ItemTooLarge",
        "QueueFull",
        "ServerStopped",
        "SlowReader",
    ),
    "callboard.patterns.pipeline.errors": ("ItemError",),
    "callboard.patterns.pipeline.executor": ("PipelineExecutor", "PipelineStats"),
    "callboard.patterns.pipeline.stage": ("PipelineStage",),
    "callboard.patterns.pipeline.streams": ("END", "PipelineSink", "gpu_stage", "run_collect", "source_from_unbounded"),
    "callboard.patterns.quarantine.errors": ("Quarantined",),
    "callboard.patterns.quarantine.guard": ("Quarantine", "QuarantineStats"),
    "callboard.patterns.replicas.ejection": ("Ejection",),
    "callboard.patterns.replicas.errors": ("NoReplica",),
    "callboard.patterns.replicas.hedging": ("Hedging",),
    "callboard.patterns.replicas.picking": ("ReplicaLoad", "ReplicaPolicy"),
    "callboard.patterns.replicas.replica": ("Replica",),
    "callboard.patterns.replicas.server": ("ModelReplicaPool",),
    "callboard.patterns.replicas.stats": ("PoolStats", "ReplicaStats"),
    "callboard.patterns.fairshare.server": ("FairShareScheduler",),
    "callboard.patterns.fairshare.settings": ("FairOverflow", "Tenant", "UnknownTenant"),
    "callboard.patterns.fairshare.stats": ("FairShareStats", "TenantStats"),
    "callboard.patterns.hotswap.canary": ("Canary",),
    "callboard.patterns.hotswap.errors": ("SwapFailed", "SwapInProgress", "UnknownVersion"),
    "callboard.patterns.hotswap.results": ("HotSwapReply", "HotSwapStats", "SwapReport"),
    "callboard.patterns.hotswap.server": ("ModelHotSwapServer",),
    "callboard.patterns.hotswap.versions": ("ModelVersion", "VersionState", "VersionStats"),
    "callboard.patterns.moe.dispatch": ("CapacityPolicy",),
    "callboard.patterns.moe.errors": ("BadExpertResult", "BadGate"),
    "callboard.patterns.moe.gate": ("Score", "TopK"),
    "callboard.patterns.moe.results": ("MoeResult", "MoeStats"),
    "callboard.patterns.moe.server": ("MoeRouter",),
    "callboard.patterns.speculative.drafts": ("Draft", "Proposal"),
    "callboard.patterns.speculative.figures": ("SpeculativeStats",),
    "callboard.patterns.speculative.modeldraft": ("ModelDraft",),
    "callboard.patterns.speculative.models": ("Cacheless", "KvState", "LanguageModel", "Model", "TokenState"),
    "callboard.patterns.speculative.ngram": ("NGramDraft",),
    "callboard.patterns.speculative.requests": ("Decode", "Decoded"),
    "callboard.patterns.speculative.sampling": ("Acceptance",),
    "callboard.patterns.speculative.server": ("SpeculativeDecoder",),
    "callboard.patterns.contract.options": ("RequestOptions",),
    "callboard.patterns.batching.continuous.server": ("ContinuousBatchingServer", "ContinuousStats"),
    "callboard.patterns.batching.continuous.policy": ("Preemption",),
    "callboard.patterns.batching.continuous.steps": ("DONE", "Last", "NOTHING", "Slot"),
    "callboard.patterns.batching.sequences.server": ("SequenceBatchingServer", "SequenceStats"),
    "callboard.patterns.batching.sequences.slots": ("SequenceLost", "SequenceSlot"),
    "callboard.patterns.hotswap.memory": ("DeviceMemory", "MemoryKept"),
    "callboard.patterns.replicas.autoscale": ("Autoscale",),
    "callboard.patterns.cascade.drift": ("Drift", "DriftAlarm"),
    "callboard.patterns.requests.waiting": ("OverflowPolicy",),
    "callboard.retry": ("request_key", "retrying"),
    "callboard.serve.http.starting": ("serve",),
    "callboard.support": ("supports",),
    "callboard.system": ("System", "device"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "DONE",
    "END",
    "NOTHING",
    "AccelError",
    "AccelRef",
    "Acceptance",
    "Actor",
    "ActorRef",
    "ActorStopped",
    "ActorSystem",
    "AllForOne",
    "AskTimeout",
    "Autoscale",
    "BackendUnavailable",
    "Backoff",
    "BadBatchResult",
    "BadExpertResult",
    "BadGate",
    "BatchingStats",
    "Cacheless",
    "Calibration",
    "Canary",
    "Candidate",
    "CapacityPolicy",
    "CascadeReply",
    "CascadeStage",
    "CascadeStats",
    "Collective",
    "ContextLost",
    "ContextPoisoned",
    "ContinuousBatchingServer",
    "ContinuousStats",
    "DType",
    "DTypeLike",
    "DeadlineExceeded",
    "Decode",
    "Decoded",
    "Device",
    "DeviceChoice",
    "DeviceConfig",
    "DeviceMemory",
    "DeviceMismatch",
    "DeviceStopped",
    "DeviceSupervisor",
    "DeviceTime",
    "Directive",
    "Dispatch",
    "Divergence",
    "Draft",
    "Drift",
    "DriftAlarm",
    "DriverError",
    "DynamicBatchingServer",
    "Ejection",
    "Elementwise",
    "ElementwiseMany",
    "EntityRef",
    "Event",
    "FairOverflow",
    "FairShareScheduler",
    "FairShareStats",
    "FileJournal",
    "GpuRef",
    "GpuRefStale",
    "GpuToken",
    "Hedging",
    "HostConfig",
    "HostContext",
    "HotSwapReply",
    "HotSwapStats",
    "In",
    "InOut",
    "InferenceCascade",
    "IpcEventHandle",
    "IpcMemHandle",
    "ItemError",
    "ItemTooLarge",
    "Journal",
    "JournalConflict",
    "JournalCorrupt",
    "JournalFailed",
    "JournalStats",
    "Kernel",
    "KvState",
    "LanguageModel",
    "Last",
    "LibraryError",
    "Lost",
    "Mailbox",
    "MailboxFull",
    "MemoryJournal",
    "MemoryKept",
    "MemoryPoolStats",
    "Model",
    "ModelDraft",
    "ModelHotSwapServer",
    "ModelReplicaPool",
    "ModelVersion",
    "MoeResult",
    "MoeRouter",
    "MoeStats",
    "Msg",
    "NGramDraft",
    "NoEligibleDevice",
    "NoReplica",
    "NotRecordable",
    "NumericalError",
    "OneForOne",
    "Op",
    "Out",
    "OutOfMemory",
    "OverflowPolicy",
    "P2pGraph",
    "P2pTopology",
    "PinnedBuffer",
    "PinnedBufferPool",
    "PinnedStats",
    "PipelineExecutor",
    "PipelineSink",
    "PipelineStage",
    "PipelineStats",
    "PlacementActor",
    "PlacementHints",
    "PlacementPolicy",
    "PlacementShardingAdapter",
    "PoolStats",
    "PostgresJournal",
    "PreMulSum",
    "Preemption",
    "Proposal",
    "Props",
    "Quarantine",
    "QuarantineStats",
    "Quarantined",
    "QueueFull",
    "Recording",
    "RecordingStats",
    "Recovered",
    "RedisJournal",
    "RegionStopped",
    "RemoteError",
    "ReplayDiverged",
    "ReplayHarness",
    "ReplayMode",
    "ReplayReport",
    "Replica",
    "ReplicaLoad",
    "ReplicaPolicy",
    "ReplicaStats",
    "Reply",
    "ReplyError",
    "Request",
    "RequestOptions",
    "ResidentActor",
    "ResidentRef",
    "ResidentState",
    "RnnParams",
    "Scalar",
    "Score",
    "SequenceBatchingServer",
    "SequenceLost",
    "SequenceSlot",
    "SequenceStats",
    "ServerStopped",
    "ShapeError",
    "Slot",
    "SlowReader",
    "SpeculativeDecoder",
    "SpeculativeStats",
    "SqliteJournal",
    "Stopped",
    "Stream",
    "SwapFailed",
    "SwapInProgress",
    "SwapReport",
    "System",
    "Tenant",
    "TenantStats",
    "TensorMap",
    "Terminated",
    "TokenState",
    "TopK",
    "TraceRecord",
    "UnknownTenant",
    "UnknownVersion",
    "Unrecoverable",
    "UnsupportedOp",
    "VersionState",
    "VersionStats",
    "Withdrawn",
    "World",
    "WorldHealth",
    "WorldLost",
    "WorldStats",
    "WorldStopped",
    "__version__",
    "as_dtype",
    "device",
    "elementwise",
    "gpu_stage",
    "kernel",
    "pow2_length",
    "reduction",
    "request_key",
    "retrying",
    "run_collect",
    "serve",
    "source_from_unbounded",
    "supports",
    "sync",
    "tensor_map",
    "world",
    "xp",
]

logging.getLogger("callboard").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in ("kernel", "sync", "xp"):  # modules, of which the first is a decorator, too
        return importlib.import_module(f"callboard.{name}")
    module = _WHERE.get(name)
    if name == "__version__":
        value = _version()
    elif module is not None:
        value = getattr(importlib.import_module(module), name)
    else:
        raise AttributeError(f"module 'callboard' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("callboard")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    """Keeps ``cb.device`` and ``cb.serve`` functions: importing the packages of these names would bind the modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("device", "serve") or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
