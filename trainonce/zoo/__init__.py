"""Models to inspect and train, by name: from torchvision, timm, transformers, or the user's own module."""
