"""What things cost: time, memory and latency of training steps, trainings, inspection and reading."""
