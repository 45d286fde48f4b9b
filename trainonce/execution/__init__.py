"""A model, run: forward passes on any kind of example, outputs compared, the example's outline."""
