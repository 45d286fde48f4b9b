"""What a machine's file names can hold."""

import sys

import pytest

needs_unicode_names = pytest.mark.skipif(
    sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"), reason="this locale can't spell such names"
)
