"""The operators' start page: the whole fleet at a glance."""
