"""What a step of `fit` takes in two processes, beside a step of plain DistributedDataParallel."""
