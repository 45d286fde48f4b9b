"""The small model on disk: takes a cut model to a folder of JSON and safetensors, and a folder onto the user's own class."""

from trainonce.artifact.folder import load, save
from trainonce.artifact.manifest import BadArtifact, WrongModel

__all__ = ["BadArtifact", "WrongModel", "load", "save"]
