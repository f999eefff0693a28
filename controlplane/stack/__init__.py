"""The embedded stack of `make up`: PostgreSQL, Redis, web, worker and beat under one supervisor. Start at up.py."""
