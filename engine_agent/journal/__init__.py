"""An engine's records of requests, written to disk before they are reported."""
