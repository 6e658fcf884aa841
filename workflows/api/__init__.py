"""The custom resources, ours and what we read of other people's, as frozen models."""
