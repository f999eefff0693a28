"""`luminet savings`: measure what prefix caching saves on one machine, alternating between with and without."""
