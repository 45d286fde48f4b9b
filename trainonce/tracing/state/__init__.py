"""The state of a traced run.

Labels on tensors, integers that remember where they come from, and what was seen.
"""
