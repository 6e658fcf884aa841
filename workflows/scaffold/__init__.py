"""What the kinds share."""
