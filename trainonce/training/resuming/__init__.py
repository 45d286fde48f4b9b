"""Resuming a run from a checkpoint."""
