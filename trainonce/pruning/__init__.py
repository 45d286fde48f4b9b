"""What happens in a training run: from `attach` to the small model."""
