"""Pulling groups of weights to zero."""
