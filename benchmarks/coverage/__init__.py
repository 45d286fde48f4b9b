"""How many models can be cut, exactly, with which share of their FLOPs, and how fast.

Ours and Torch-Pruning.
"""
