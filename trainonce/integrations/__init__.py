"""Adapters for other people's trainers: one module each, which needs that trainer's package."""
