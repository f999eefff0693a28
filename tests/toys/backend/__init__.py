"""`toy`: a backend that is one folder."""
