"""The tests: they mirror the tree; `tests/workflows` is pure, `tests/e2e` runs the whole real stack."""
