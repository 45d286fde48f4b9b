"""Running a model: forward passes on any kind of example, outputs compared, the outline of an example."""
