"""KeystoneService, what it consists of: reasons, children, delivery, sweep."""
