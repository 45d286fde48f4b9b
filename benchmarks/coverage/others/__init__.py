"""Models of other people's packages: one module for each package, imported only where it is measured."""
