"""The web pages. A view parses the request, calls one function and renders; services decide."""
