"""What runs on Temporal and what runs it is deployed from here."""
