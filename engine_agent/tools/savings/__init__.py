"""`luminet savings`: what prefix caching saves on one machine, measured with it and without, taking turns."""
