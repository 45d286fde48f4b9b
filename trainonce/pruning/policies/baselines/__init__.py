"""Other people's ways to choose."""
