"""The worker: settings, connections and telemetry, and the program that plugs workflows and activities together."""
