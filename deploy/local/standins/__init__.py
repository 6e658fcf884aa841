"""Stand-ins: two controllers that are not served anywhere here, played over the real servers. Never part of the product."""
