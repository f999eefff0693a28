"""The page of the KV calculator."""
