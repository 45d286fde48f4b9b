"""What the library promises: the budget, the same predictions across the cut, the demo."""
