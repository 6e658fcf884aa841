"""Tests of the OpenBao bootstrap."""
