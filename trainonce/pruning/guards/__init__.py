"""What a user's optimizer, averaged copies and frozen layers must not break."""
