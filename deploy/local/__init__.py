"""The real stack on one machine, for a demonstration, a test or a day of work."""
