"""How a sheet is written: headings, tables, pictures, progress, command-line options."""
