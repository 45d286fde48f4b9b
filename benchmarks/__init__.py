"""Measurements of trainonce beside its peers: `python -m benchmarks NAME`."""
