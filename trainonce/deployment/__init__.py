"""Out of torch: takes a small model to files that other programs run, and measures how fast it is there."""
