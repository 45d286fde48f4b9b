"""Adapters for other trainers: one module each, which needs that trainer's package."""
