"""What controller, gates and projection add to a plain loop, in time and in memory."""
