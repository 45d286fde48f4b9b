"""A run on disk: takes nested state of tensors and plain values to a folder under sha256, and back, without pickle."""

from trainonce.checkpoint.folder import BadCheckpoint, Bounds, NoRoom
from trainonce.checkpoint.rotation import Found, find_newest, recover, save_checkpoint

__all__ = ["BadCheckpoint", "Bounds", "Found", "NoRoom", "find_newest", "recover", "save_checkpoint"]
