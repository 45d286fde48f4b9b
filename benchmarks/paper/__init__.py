"""The rows of the paper's two result tables, run and printed beside its figures."""
