"""``Ids``: gives spans the ids that their requests have had since they arrived, and reads contexts for the SDK."""

from typing import Any

__all__ = ["Ids"]


class Ids:
    """Ids for a tracer that makes spans on one thread.

    Attributes:
        next: Trace context of the span that is made next.
    """

    def __init__(self) -> None:
        self.next = ""

    def generator(self) -> Any:
        """The SDK's ``IdGenerator`` that gives the ids of :attr:`next`."""
        from opentelemetry.sdk.trace.id_generator import IdGenerator

        ids = self

        class Given(IdGenerator):  # type: ignore[misc,unused-ignore]
            def generate_trace_id(self) -> int:
                return int(ids.next[3:35], 16)

            def generate_span_id(self) -> int:
                return int(ids.next[36:52], 16)

        return Given()

    def context(self, context: str) -> Any:
        """The SDK's ``SpanContext`` of a trace context."""
        from opentelemetry.trace import SpanContext, TraceFlags

        trace, span, flags = (int(part, 16) for part in context[3:55].split("-")[:3])
        return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))

    def parent(self, context: str | None) -> Any:
        """The SDK's ``Context`` below it; of None, the one of a root."""
        from opentelemetry.context import Context
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        return set_span_in_context(NonRecordingSpan(self.context(context)), Context()) if context else Context()
