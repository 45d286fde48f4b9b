"""How much of a model can go at all: small models of other people's families, cut as far as it goes."""
