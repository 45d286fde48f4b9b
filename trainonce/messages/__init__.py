"""Safe text for messages: names, paths, values and errors in one printable line."""
