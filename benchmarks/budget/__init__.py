"""Is the budget kept: short runs of real models, cut by the real pruner, counted by torch."""
