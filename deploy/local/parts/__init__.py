"""The parts of the local stack, one file per part."""
