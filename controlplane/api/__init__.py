"""The REST API under /api/v1. Translates between HTTP and services; decides nothing about organisations itself."""
