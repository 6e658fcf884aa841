"""Tests of the charts, the rights and the image."""
