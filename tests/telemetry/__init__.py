"""What people watch the product by: metrics, alerts, runbook, dashboard, traces at a real collector, log lines."""
