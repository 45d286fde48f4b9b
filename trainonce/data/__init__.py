"""Images to train and validate on, by name.

Digits, cifar10, cifar100, fashion_mnist, imagenet, or a folder of your own.
"""
