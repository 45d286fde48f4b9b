"""How the time of inspection and projection grows with the model."""
