"""Many trainings side by side: accuracy at equal FLOPs, the studies, the shapes."""
