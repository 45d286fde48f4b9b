"""A run on disk: takes nested state of tensors and plain values to a folder under sha256, and back, without pickle."""

from trainonce.storage.checkpoint.folder import Bounds
from trainonce.storage.checkpoint.rotation import Found, find_newest, recover, save_checkpoint

__all__ = ["Bounds", "Found", "find_newest", "recover", "save_checkpoint"]
