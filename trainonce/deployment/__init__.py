"""Deployment: the small model as a file, and its latency in each engine."""
