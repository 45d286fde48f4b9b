"""Scripts that write what is generated in docs/: the reference, the settings, the pictures, the site."""
