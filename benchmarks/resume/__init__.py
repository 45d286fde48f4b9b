"""kill -9 at random steps, the same command again, and the final weights compared bit for bit."""
