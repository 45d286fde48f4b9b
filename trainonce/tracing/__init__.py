"""From a model and an example to groups of channels that can be cut.

`trace` is the way in. `capture` runs the model and lets channel labels flow with the data, `operators` say
what each operator does to labels, `sizes` finds where reshapes take their sizes from, and `partition` reads
off the groups.
"""
