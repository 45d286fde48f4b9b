"""Whole runs by name.

Takes `cifar10.resnet56`, gives its model, data, optimizer, schedule and budget as plain data.
"""
