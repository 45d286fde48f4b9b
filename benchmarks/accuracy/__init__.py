"""Accuracy at equal FLOPs and equal epochs: every contender in one harness, runs cached by configuration."""
