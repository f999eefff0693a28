"""The REST API under /api/v1. It translates between HTTP and services, and decides nothing about organisations itself.

Start at routing.py, where operations are declared, and problems.py, which maps errors to statuses.
"""
