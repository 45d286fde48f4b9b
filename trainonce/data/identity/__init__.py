"""What a run's data is: takes data to a plain description, keeps it, says what has changed since."""
