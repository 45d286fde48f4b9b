"""The result of a run: measured, compared, reported."""
