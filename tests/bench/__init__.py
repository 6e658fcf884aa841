"""`python -m tests.bench`: what an order costs, against the same children applied by hand on the same stack."""
