"""The kind to read first: workflow, then judge."""
