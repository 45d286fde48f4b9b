"""A pruned model on disk: saved as JSON and safetensors, loaded into the user's own class."""

from trainonce.storage.artifact.folder import load, save

__all__ = ["load", "save"]
