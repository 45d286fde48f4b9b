"""Run the model as if units were gone."""
