"""Pull whole groups of weights to zero."""
