"""Torch-Pruning and only_train_once, as their authors say they are to be used."""
