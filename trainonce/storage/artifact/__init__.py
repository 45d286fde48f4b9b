"""The small model on disk.

Takes a cut model to a folder of JSON and safetensors, and a folder onto the user's own class.
"""

from trainonce.storage.artifact.folder import load, save

__all__ = ["load", "save"]
