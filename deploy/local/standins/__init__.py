"""Stand-ins: two controllers that are served nowhere here, played over the real servers. Not part of the product."""
