"""What was found and what happened, for people and for machines."""
