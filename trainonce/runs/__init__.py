"""A run on disk and how it is shown: its folder, its records, its report."""
