"""The identity of a run's data: described, recorded, compared on resume."""
