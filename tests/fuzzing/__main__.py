"""`python -m tests.fuzzing`; see the package's docstring."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzzing.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
