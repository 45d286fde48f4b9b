"""Distillation: training a model on the outputs of a trained one as well."""
