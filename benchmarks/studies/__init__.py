"""The paper's studies at small scale, and those that it lacks."""
