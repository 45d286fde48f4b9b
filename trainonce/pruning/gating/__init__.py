"""Gates: running the model as if units were gone."""
