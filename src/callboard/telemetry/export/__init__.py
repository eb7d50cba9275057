"""Exporters: Prometheus text, JSON lines, trace files."""
