"""A page of its own: its view, its form and its template."""
