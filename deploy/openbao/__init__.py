"""The OpenBao mounts, roles and policies that the product needs, as an idempotent bootstrap."""
