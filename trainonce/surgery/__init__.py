"""From a plan to a smaller model, proven."""
