"""Telemetry of NVIDIA's GPUs: NVML figures and Xid events, CUPTI activity, NVTX ranges. Each needs an extra."""
