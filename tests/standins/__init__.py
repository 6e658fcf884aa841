"""Tests of the stand-ins: that they look like what they stand in for."""
