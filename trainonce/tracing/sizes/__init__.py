"""Integers that must follow a cut."""
