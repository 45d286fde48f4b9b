"""Run the model once and watch: which tensor carries which channels."""
