"""Pruning during training: from `attach` to the small model."""
