"""The operators' home: the whole fleet at a glance."""
