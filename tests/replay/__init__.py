"""Histories that running orders may have: every change of the workflows must still be able to follow them."""
