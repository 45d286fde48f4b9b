"""The training loop: one optimizer step after the other."""
