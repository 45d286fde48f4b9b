"""Data sets by name: digits, cifar10, cifar100, fashion_mnist, imagenet, or your own folder of images."""
