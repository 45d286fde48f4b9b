"""Atomic storage: artifacts and checkpoints that are complete or absent."""
