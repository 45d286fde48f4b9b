"""From the user's model to groups of removable channels.

`record` runs the model once and lets channel labels flow with the data; `rules` and its neighbours say what
each operator does to labels; `sizes` finds where reshapes take their sizes from; `partition` reads off the
groups.
"""
