"""Adapters for the langgraph package: our checkpoints for its graphs, our graphs as its nodes.

Its compiled graphs are nodes of ours as they are: ``graph.add_node("agent", compiled)``.
"""

import asyncio
import functools
import secrets
from typing import TYPE_CHECKING, Any

from callboard.agents.graph.checkpoints.store import Checkpoints, Saved, Write
from callboard.core.errors import BackendUnavailable
from callboard.multi_device.replay.journals.protocol import Journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

__all__ = ["langgraph_runnable", "langgraph_saver"]


def langgraph_saver(store: Checkpoints | Journal | None = None, *, serde: Any = None) -> Any:
    """A checkpointer for graphs of langgraph, over a journal: ``builder.compile(checkpointer=...)``.

    It has all methods of langgraph's ``BaseCheckpointSaver``, also ``copy_thread``, ``delete_for_runs`` and ``prune``.
    After a prune, a ``DeltaChannel`` whose history was deleted starts from nothing.

    Args:
        store: The checkpoints, or a journal for them; None keeps them in memory.
        serde: Serializer of langgraph; None for its default.

    Raises:
        BackendUnavailable: There is no langgraph: ``pip install callboard[langgraph]``.
    """
    checkpoints = store if isinstance(store, Checkpoints) else Checkpoints(store)
    return _saver_class()(checkpoints, serde)


def langgraph_runnable(graph: Any) -> Any:
    """A graph of ours as a Runnable of langchain, for ``add_node`` of langgraph and for its ``|``.

    Raises:
        BackendUnavailable: There is no langchain-core, which comes with langgraph.
    """
    try:
        from langchain_core.runnables import RunnableLambda
    except ImportError as e:
        raise BackendUnavailable("langgraph_runnable needs langchain-core: pip install 'callboard[langgraph]'") from e

    async def ainvoke(state: Any) -> Any:
        return await graph.ainvoke(state)

    def invoke(state: Any) -> Any:
        return asyncio.run(ainvoke(state))

    return RunnableLambda(invoke, afunc=ainvoke)


@functools.cache
def _saver_class() -> Any:
    try:
        from langgraph.checkpoint.base import (
            WRITES_IDX_MAP,
            BaseCheckpointSaver,
            CheckpointTuple,
            get_checkpoint_id,
            get_checkpoint_metadata,
            writes_sort_key,
        )
    except ImportError as e:
        raise BackendUnavailable("langgraph_saver needs langgraph: pip install 'callboard[langgraph]'") from e
    base: Any = BaseCheckpointSaver

    class JournalSaver(base):  # type: ignore[misc]
        """Checkpoints of langgraph in a journal."""

        def __init__(self, store: Checkpoints, serde: Any) -> None:
            super().__init__(serde=serde)
            self.store = store

        def _dumps(self, value: Any) -> bytes:
            kind, data = self.serde.dumps_typed(value)
            found: bytes = kind.encode() + b"\0" + bytes(data)
            return found

        def _loads(self, data: bytes) -> Any:
            kind, _, content = data.partition(b"\0")
            return self.serde.loads_typed((kind.decode(), content))

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            thread, ns, parent = _place(config)
            body = {key: value for key, value in checkpoint.items() if key != "channel_values"}
            values = checkpoint["channel_values"]
            kept = get_checkpoint_metadata(config, metadata)
            self.store.put(
                thread,
                ns,
                checkpoint["id"],
                parent,
                body=self._dumps(body),
                versions={**checkpoint["channel_versions"], **new_versions},
                values={channel: self._dumps(values[channel]) for channel in new_versions if channel in values},
                metadata=self._dumps(kept),
                run_id=kept.get("run_id"),
            )
            return _config(thread, ns, checkpoint["id"])

        def put_writes(
            self, config: Any, writes: "Sequence[tuple[str, Any]]", task_id: str, task_path: str = ""
        ) -> None:
            thread, ns, id_ = _place(config)
            rows = [
                Write(task_id, WRITES_IDX_MAP.get(channel, n), channel, self._dumps(value), task_path)
                for n, (channel, value) in enumerate(writes)
            ]
            self.store.put_writes(thread, ns, str(id_), rows)

        def get_tuple(self, config: Any) -> Any:
            thread, ns, _ = _place(config)
            saved = self.store.get(thread, ns, get_checkpoint_id(config))
            return None if saved is None else self._tuple(saved)

        def _tuple(self, saved: Saved) -> Any:
            values = {channel: self._loads(data) for channel, data in saved.values.items()}
            writes = sorted(saved.writes, key=lambda w: writes_sort_key(w.path, w.task, w.number))
            return CheckpointTuple(
                _config(saved.thread, saved.ns, saved.id),
                {**self._loads(saved.body), "channel_values": values},
                self._loads(saved.metadata),
                None if saved.parent is None else _config(saved.thread, saved.ns, saved.parent),
                [(write.task, write.channel, self._loads(write.value)) for write in writes],
            )

        def list(
            self,
            config: Any,
            *,
            filter: Any = None,
            before: Any = None,
            limit: int | None = None,
        ) -> "Iterator[Any]":
            asked = {} if config is None else config["configurable"]
            one = None if config is None else get_checkpoint_id(config)
            last = None if before is None else get_checkpoint_id(before)
            for thread, ns, id_, data in self.store.entries(asked.get("thread_id"), asked.get("checkpoint_ns"), last):
                if one is not None and id_ != one:
                    continue
                if filter:
                    metadata = self._loads(data)
                    if any(metadata.get(key) != value for key, value in filter.items()):
                        continue
                if limit is not None:
                    if limit <= 0:
                        return
                    limit -= 1
                saved = self.store.get(thread, ns, id_)
                if saved is not None:
                    yield self._tuple(saved)

        def delete_thread(self, thread_id: str) -> None:
            self.store.delete_thread(thread_id)

        def delete_for_runs(self, run_ids: "Sequence[str]") -> None:
            self.store.delete_runs(list(map(str, run_ids)))

        def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
            self.store.copy_thread(source_thread_id, target_thread_id)

        def prune(self, thread_ids: "Sequence[str]", *, strategy: str = "keep_latest") -> None:
            if strategy == "keep_latest":
                self.store.prune(list(thread_ids))
            elif strategy == "delete":
                for thread in thread_ids:
                    self.store.delete_thread(thread)
            else:
                raise ValueError(f"strategy is {strategy!r}; it must be 'keep_latest' or 'delete'")

        def get_next_version(self, current: Any, channel: None) -> str:
            number = 0 if current is None else int(str(current).split(".")[0])
            return f"{number + 1:032}.{secrets.token_hex(8)}"  # two branches of a thread have versions of their own

        async def _off_loop(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            if self.store.in_memory:
                return function(*args, **kwargs)
            return await asyncio.to_thread(function, *args, **kwargs)

        async def alist(self, config: Any, **options: Any) -> "AsyncIterator[Any]":
            found = await self._off_loop(lambda: [*self.list(config, **options)])
            for each in found:
                yield each

    def of(name: str) -> Any:
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await self._off_loop(getattr(self, name), *args, **kwargs)

        method.__name__ = f"a{name}"
        return method

    names = ("put", "put_writes", "get_tuple", "delete_thread", "delete_for_runs", "copy_thread", "prune")
    for name in names:
        setattr(JournalSaver, f"a{name}", of(name))
    return JournalSaver


def _place(config: Any) -> tuple[str, str, str | None]:
    place = config["configurable"]
    return str(place["thread_id"]), place.get("checkpoint_ns", ""), place.get("checkpoint_id")


def _config(thread: str, ns: str, id_: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_}}
