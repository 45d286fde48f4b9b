"""Checkpoints of a run: nested state saved without pickle, sealed with sha256 sums, rotated, recovered."""

from trainonce.storage.checkpoint.folder import Bounds
from trainonce.storage.checkpoint.rotation import Found, find_newest, recover, save_checkpoint

__all__ = ["Bounds", "Found", "find_newest", "recover", "save_checkpoint"]
