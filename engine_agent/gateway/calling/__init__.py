"""HTTP/1.1 connections to engines: pooled, each with one request at a time. Start with `pool.py`."""
