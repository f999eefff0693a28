"""Every decision of the HTTP parsers at the edge, as cases on raw sockets."""
