"""Writes of the tenants domain, a module for each subject. Each function is one transaction."""
