"""One training of a shape in a process of its own: the child of `accuracy`, which also knows the shapes."""

from __future__ import annotations

import benchmarks.shapes.catalogue  # noqa: F401 - makes the shapes known
from benchmarks.accuracy.child import main

if __name__ == "__main__":
    main()
