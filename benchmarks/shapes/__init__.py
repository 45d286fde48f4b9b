"""Which shape learns fastest at equal FLOPs."""
