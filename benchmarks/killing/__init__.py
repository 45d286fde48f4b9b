"""Trainings killed with SIGKILL and resumed: the user's own loop, and `trainonce train`."""
