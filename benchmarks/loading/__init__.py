"""What reading and augmenting images adds to a training step, against the same step on one constant batch."""
