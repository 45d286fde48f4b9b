"""One file per target, with one decorated function."""
