"""Words for people: names, paths, values and errors as a message may show them."""
