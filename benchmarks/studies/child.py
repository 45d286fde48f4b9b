"""One run of a study in a process of its own: the child of `accuracy`, which also knows the variants."""

from __future__ import annotations

import benchmarks.studies.variants  # noqa: F401 - makes the variants known
from benchmarks.accuracy.child import main

if __name__ == "__main__":
    main()
