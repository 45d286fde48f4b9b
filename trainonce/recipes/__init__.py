"""Recipes: complete runs by name, such as `cifar10.resnet56`."""
