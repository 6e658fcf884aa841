"""Tests of the worker program: settings, connection, telemetry, tracing, health, start and shutdown."""
