"""A trained model that the one in training also learns from."""
