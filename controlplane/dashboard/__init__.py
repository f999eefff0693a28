"""The web pages for operators and customers. A view parses the request, calls one function and renders.

Views decide nothing; services do.
"""
