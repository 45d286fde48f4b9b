"""Batches of the user's data, in an order that a resumed run can reproduce."""
