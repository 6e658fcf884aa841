"""One release of the worker follows another while orders run; and what else may change under them."""
