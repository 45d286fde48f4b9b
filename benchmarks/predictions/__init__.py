"""Are predictions the same before and after the cut, on a whole test set."""
