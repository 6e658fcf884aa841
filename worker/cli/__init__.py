"""`c5c3-orders`, the people's command line: how orders are, why, and what would help. It writes nothing."""
