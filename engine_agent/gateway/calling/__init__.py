"""HTTP/1.1 as a gateway speaks it to engines: connections that are kept, and on each one request at a time."""
