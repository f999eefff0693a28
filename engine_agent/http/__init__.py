"""HTTP as engine and gateway both speak it: a client's other end, errors, headers, events, connections."""
