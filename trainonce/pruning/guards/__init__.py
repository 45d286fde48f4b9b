"""Guards against optimizers, averaged copies and frozen layers that pruning can't work with."""
