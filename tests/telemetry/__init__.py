"""Tests of telemetry: metrics, traces, logs and what Prometheus reads."""
