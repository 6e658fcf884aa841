"""Tests of what touches the world, each against the real thing where one can be had."""
