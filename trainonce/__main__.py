"""`python -m trainonce`: the same as the command `trainonce`."""

import sys

from trainonce.cli import main

if __name__ == "__main__":
    sys.exit(main())
