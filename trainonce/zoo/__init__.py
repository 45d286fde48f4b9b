"""Models by name: from torchvision, timm, transformers, or the user's own module."""
