"""The paper's studies at small scale, and two that it lacks."""
