"""A model in a runtime: what it costs on paper, and how fast it answers."""
