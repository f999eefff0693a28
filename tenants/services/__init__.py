"""Writes of the tenants domain, a module for each subject. Each function is one deed; all of it happens or nothing."""
