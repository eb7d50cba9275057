"""``TABLE``: every metric that is exported, with its unit, type and labels. ``docs/metrics.md`` shows it."""

from callboard.telemetry.families import Family

__all__ = ["TABLE", "family"]

NODE = ()
ACTOR = ("actor",)
DEVICE = ("device",)
OP = ("device", "op")
MODEL = ("model", "version")
GPU = ("gpu", "uuid")

_ROWS = (
    # events
    ("callboard_events_waiting", "gauge", "", NODE, "Events that no exporter has taken yet."),
    ("callboard_events_total", "counter", "", NODE, "Events that were taken from the ring."),
    ("callboard_events_dropped_total", "counter", "", NODE, "Events that were dropped because exporters were slow."),
    # actors
    (
        "callboard_actors",
        "gauge",
        "",
        ("system",),
        "Living actors. Beyond 1,000 of a system, further ones share the row `/system/(others)`.",
    ),
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
    (
        "callboard_device_info",
        "gauge",
        "",
        ("device", "system", "backend", "uuid"),
        "1 for each open device: the system that opened it, and the device behind its name.",
    ),
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
        (
            "Time of an op on its stream (without events of the device: from its launch to its known completion), of a "
            "resident actor's call from its begin to its end and that of the work it enqueued; one in 127 is measured."
        ),
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
        "callboard_http_descriptor_shortages_total",
        "counter",
        "",
        NODE,
        "Times that no file descriptor was left, of ten looks per second: connections are closed unanswered.",
    ),
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
    # GPUs, by NVML; the names of DCGM's exporter are in parentheses
    ("callboard_gpu_lost", "gauge", "", GPU, "Whether the GPU does not answer any more."),
    ("callboard_gpu_power_watts", "gauge", "watts", GPU, "Power (DCGM_FI_DEV_POWER_USAGE)."),
    ("callboard_gpu_power_limit_watts", "gauge", "watts", GPU, "Enforced limit of power."),
    (
        "callboard_gpu_energy_joules_total",
        "counter",
        "joules",
        GPU,
        "Energy since the driver was loaded (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, in mJ).",
    ),
    ("callboard_gpu_temperature_celsius", "gauge", "celsius", GPU, "Temperature (DCGM_FI_DEV_GPU_TEMP)."),
    (
        "callboard_gpu_memory_temperature_celsius",
        "gauge",
        "celsius",
        GPU,
        "Temperature of the memory (DCGM_FI_DEV_MEMORY_TEMP).",
    ),
    (
        "callboard_gpu_clock_hertz",
        "gauge",
        "hertz",
        (*GPU, "clock"),
        "Clocks: sm, memory, video (DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_MEM_CLOCK, in MHz).",
    ),
    (
        "callboard_gpu_throttled",
        "gauge",
        "",
        (*GPU, "reason"),
        "1 for each reason why clocks are lowered (DCGM_FI_DEV_CLOCK_THROTTLE_REASONS).",
    ),
    (
        "callboard_gpu_utilization_ratio",
        "gauge",
        "ratio",
        GPU,
        "Share of the time with a kernel (DCGM_FI_DEV_GPU_UTIL, in %).",
    ),
    (
        "callboard_gpu_memory_utilization_ratio",
        "gauge",
        "ratio",
        GPU,
        "Share of the time with memory traffic (DCGM_FI_DEV_MEM_COPY_UTIL, in %).",
    ),
    (
        "callboard_gpu_memory_bytes",
        "gauge",
        "bytes",
        (*GPU, "kind"),
        "Memory: total, used, free (DCGM_FI_DEV_FB_USED, DCGM_FI_DEV_FB_FREE, in MiB).",
    ),
    (
        "callboard_gpu_ecc_errors_total",
        "counter",
        "",
        (*GPU, "kind"),
        "Memory errors since the driver was loaded (DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FI_DEV_ECC_DBE_VOL_TOTAL).",
    ),
    (
        "callboard_gpu_remapped_rows_total",
        "counter",
        "",
        (*GPU, "kind"),
        "Rows that were remapped (DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS).",
    ),
    (
        "callboard_gpu_row_remap_failed",
        "gauge",
        "",
        GPU,
        "Whether a row could not be remapped (DCGM_FI_DEV_ROW_REMAP_FAILURE).",
    ),
    (
        "callboard_gpu_pcie_bytes_total",
        "counter",
        "bytes",
        (*GPU, "direction"),
        "Bytes over PCIe (DCGM_FI_DEV_PCIE_TX_THROUGHPUT, DCGM_FI_DEV_PCIE_RX_THROUGHPUT are its rates).",
    ),
    ("callboard_gpu_pcie_replays_total", "counter", "", GPU, "Packets sent again (DCGM_FI_DEV_PCIE_REPLAY_COUNTER)."),
    (
        "callboard_gpu_nvlink_bytes_total",
        "counter",
        "bytes",
        (*GPU, "direction"),
        "Bytes over NVLink (DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL is the rate of both).",
    ),
    ("callboard_gpu_processes", "gauge", "", GPU, "Processes with a context."),
    ("callboard_gpu_mig_enabled", "gauge", "", GPU, "Whether the GPU is divided into MIG devices."),
    (
        "callboard_gpu_xid_errors_total",
        "counter",
        "",
        (*GPU, "xid"),
        "Xid events by number (DCGM_FI_DEV_XID_ERRORS is the last number).",
    ),
)

TABLE: dict[str, Family] = {row[0]: Family(*row) for row in _ROWS}


def family(name: str) -> Family:
    """The row of a metric.

    Raises:
        KeyError: There is none; all metrics are listed here.
    """
    return TABLE[name]
