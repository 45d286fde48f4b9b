"""The state of a traced run: labels on tensors, integers that remember where they come from, and what was seen."""
