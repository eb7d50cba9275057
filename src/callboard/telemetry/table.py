"""``TABLE``: every metric that is exported, with its unit, type and labels. ``docs/reference/metrics.md`` shows it."""

from callboard.telemetry.families import Family

__all__ = ["TABLE", "family"]

NODE = ()
ACTOR = ("actor",)
DEVICE = ("device",)
OP = ("device", "op")
MODEL = ("model", "version")

_ROWS = (
    # events
    ("callboard_events_waiting", "gauge", "", NODE, "Events that no exporter has taken yet."),
    ("callboard_events_total", "counter", "", NODE, "Events that were taken from the ring."),
    ("callboard_events_dropped_total", "counter", "", NODE, "Events that were dropped because exporters were slow."),
    # actors
    ("callboard_actor_mailbox_depth", "gauge", "", ACTOR, "Messages in the mailbox."),
    ("callboard_actor_messages_total", "counter", "", ACTOR, "Messages that were handled."),
    ("callboard_actor_failures_total", "counter", "", ACTOR, "Messages whose handler raised."),
    ("callboard_actor_busy_seconds_total", "counter", "seconds", ACTOR, "Time in handlers, awaits included."),
    (
        "callboard_actor_wait_seconds",
        "gauge",
        "seconds",
        ACTOR,
        "Estimated time of a message in the mailbox: depth by rate.",
    ),
    ("callboard_actor_restarts_total", "counter", "", ACTOR, "Instances after the first."),
    ("callboard_dead_letters_total", "counter", "", ("reason",), "Messages that were not handled."),
    # devices
    ("callboard_device_ready", "gauge", "", DEVICE, "Whether the context is ready."),
    ("callboard_context_generation", "gauge", "", DEVICE, "Ordinal of the context that the device has."),
    ("callboard_context_losses_total", "counter", "", DEVICE, "Contexts that the device has lost."),
    (
        "callboard_context_recovery_seconds",
        "histogram",
        "seconds",
        DEVICE,
        "Time from a loss until the next context was ready.",
    ),
    ("callboard_device_standbys_ready", "gauge", "", DEVICE, "Standbys that could take over now."),
    ("callboard_device_ops_queued", "gauge", "", DEVICE, "Calls that are not sent yet."),
    ("callboard_device_ops_in_flight", "gauge", "", ("device", "library"), "Ops without a completion."),
    ("callboard_device_ops_completed_total", "counter", "", DEVICE, "Ops that succeeded."),
    ("callboard_device_ops_failed_total", "counter", "", DEVICE, "Ops that failed."),
    ("callboard_device_out_of_memory_total", "counter", "", DEVICE, "Ops that failed for lack of memory."),
    ("callboard_device_ops_parked", "gauge", "", DEVICE, "Ops that wait in the host for a plan, a call or memory."),
    (
        "callboard_device_memory_bytes",
        "gauge",
        "bytes",
        ("device", "kind"),
        "Device memory: free, total, used, cached; staged: host memory in arenas.",
    ),
    ("callboard_device_memory_peak_bytes", "gauge", "bytes", DEVICE, "The most memory in use in this context."),
    (
        "callboard_device_memory_fragmentation_ratio",
        "gauge",
        "ratio",
        DEVICE,
        "Share of the cached memory that the largest request cannot have.",
    ),
    ("callboard_device_buffers", "gauge", "", DEVICE, "Arrays on the device."),
    ("callboard_device_streams", "gauge", "", DEVICE, "Streams of the context."),
    ("callboard_plans", "gauge", "", ("device", "library"), "Plans that the context keeps."),
    (
        "callboard_plan_hits_total",
        "counter",
        "",
        ("device", "library"),
        "Launches that found their plan, in this context.",
    ),
    ("callboard_plan_misses_total", "counter", "", ("device", "library"), "Plans that were made, in this context."),
    (
        "callboard_plan_evictions_total",
        "counter",
        "",
        ("device", "library"),
        "Plans that were dropped, in this context.",
    ),
    # ops
    ("callboard_op_calls_total", "counter", "", OP, "Ops that were called."),
    ("callboard_op_failures_total", "counter", "", OP, "Ops that failed, or were lost with their context."),
    (
        "callboard_op_seconds",
        "histogram",
        "seconds",
        OP,
        "Time from an op's launch to its known completion; one op in 127 is measured.",
    ),
    # residents
    (
        "callboard_resident_calls_total",
        "counter",
        "",
        ("device", "actor", "end"),
        "Answered calls of resident actors; end: completed, failed.",
    ),
    ("callboard_resident_calls_in_flight", "gauge", "", ("device", "actor"), "Calls without an answer."),
    ("callboard_resident_restarts_total", "counter", "", ("device", "actor"), "Instances after the first."),
    (
        "callboard_resident_busy_seconds_total",
        "counter",
        "seconds",
        ("device", "actor"),
        "Time in calls, in this context.",
    ),
    # blueprints
    ("callboard_server_requests_total", "counter", "", ("server", "kind", "end"), "Requests by how they ended."),
    ("callboard_server_queued", "gauge", "", ("server", "kind"), "Requests that wait to run."),
    ("callboard_server_running", "gauge", "", ("server", "kind"), "Requests that run."),
    (
        "callboard_server_queue_seconds",
        "histogram",
        "seconds",
        ("server", "kind"),
        "Time from submission until the function was called.",
    ),
    (
        "callboard_server_total_seconds",
        "histogram",
        "seconds",
        ("server", "kind"),
        "Time from submission to the value.",
    ),
    ("callboard_server_batch_size", "histogram", "", ("server", "kind"), "Requests per batch, or per step."),
    # processes
    ("callboard_process_resident_memory_bytes", "gauge", "bytes", ("role", "device", "pid"), "Memory of a process."),
    (
        "callboard_process_cpu_seconds_total",
        "counter",
        "seconds",
        ("role", "device", "pid"),
        "Processor time of a process.",
    ),
    ("callboard_process_threads", "gauge", "", ("role", "device", "pid"), "Threads of a process."),
    # callboard serve
    ("callboard_ready", "gauge", "", NODE, "Whether requests are accepted."),
    ("callboard_http_requests_open", "gauge", "", NODE, "Requests that have no response yet."),
    (
        "callboard_http_responses_total",
        "counter",
        "",
        ("route", "status"),
        "Responses by route and status; 499: the client left.",
    ),
    ("callboard_http_connections_stalled_total", "counter", "", NODE, "Connections closed: the client took nothing."),
    (
        "callboard_http_request_seconds",
        "histogram",
        "seconds",
        ("route",),
        "Seconds from a request's head to its response.",
    ),
    ("callboard_model_ready", "gauge", "", MODEL, "Whether the model's device is ready."),
    (
        "callboard_model_requests_total",
        "counter",
        "",
        (*MODEL, "end"),
        "Requests to the model by how they ended; a value that it does not declare counts twice.",
    ),
    ("callboard_model_queued", "gauge", "", MODEL, "Requests that wait to run."),
    ("callboard_model_running", "gauge", "", MODEL, "Requests that run."),
    (
        "callboard_model_queue_seconds",
        "histogram",
        "seconds",
        MODEL,
        "Seconds from a request's submission until the model's function was called.",
    ),
    (
        "callboard_model_total_seconds",
        "histogram",
        "seconds",
        MODEL,
        "Seconds from a request's submission to its value.",
    ),
    ("callboard_model_prompt_tokens", "histogram", "tokens", MODEL, "Tokens of a prompt, or of an input."),
    ("callboard_model_completion_tokens", "histogram", "tokens", MODEL, "New tokens of a text."),
    (
        "callboard_model_time_to_first_token_seconds",
        "histogram",
        "seconds",
        MODEL,
        "Seconds from a request's submission to its first token.",
    ),
    (
        "callboard_model_time_between_tokens_seconds",
        "histogram",
        "seconds",
        MODEL,
        "Seconds from one token of a text to the next.",
    ),
    ("callboard_model_batch_size", "histogram", "", MODEL, "Requests per batch, or per step."),
    ("callboard_model_quarantined_keys", "gauge", "", MODEL, "Keys whose requests are refused: they lost contexts."),
    (
        "callboard_model_quarantined_total",
        "counter",
        "",
        MODEL,
        "Requests that were refused, or ended, by a quarantine.",
    ),
    ("callboard_model_tenant_served_total", "counter", "", (*MODEL, "tenant"), "Cost that the tenant was served."),
    ("callboard_model_tenant_queued", "gauge", "", (*MODEL, "tenant"), "Requests of the tenant that wait to run."),
    ("callboard_model_tenant_running", "gauge", "", (*MODEL, "tenant"), "Requests of the tenant that run."),
    (
        "callboard_device_generation",
        "gauge",
        "",
        (*MODEL, "device"),
        "Ordinal of the context that a model's device has.",
    ),
    ("callboard_device_restarts_total", "counter", "", (*MODEL, "device"), "Contexts that a model's device has lost."),
)

TABLE: dict[str, Family] = {row[0]: Family(*row) for row in _ROWS}


def family(name: str) -> Family:
    """The row of a metric.

    Raises:
        KeyError: There is none; all metrics are listed here.
    """
    return TABLE[name]
