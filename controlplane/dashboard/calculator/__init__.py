"""The KV calculator as a page."""
