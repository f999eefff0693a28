"""What the cache was worth to one organisation."""
