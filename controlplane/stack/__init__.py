"""The embedded stack behind `make up`: real PostgreSQL, Redis, web, worker and beat under one supervisor."""
