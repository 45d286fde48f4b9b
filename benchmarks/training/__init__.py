"""Many trainings side by side: accuracy at equal FLOPs, the studies, the shapes; runs are recorded by configuration."""
