"""`toy8`: a KV format that is one codec file and an entry of the registry."""
