"""What a run has come to: measured, compared, reported."""
