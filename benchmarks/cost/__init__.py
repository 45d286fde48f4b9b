"""Training time, memory and latency beside the peers."""
