"""The workflows as the worker runs them, on a Temporal server whose clock a test turns; only the world is made up."""
