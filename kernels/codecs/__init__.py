"""One module for each way to store a vector: what it keeps, how torch encodes and decodes it, how Triton does."""
