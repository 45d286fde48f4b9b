"""What a model's channels are: groups, plans and their cost, as plain data."""
