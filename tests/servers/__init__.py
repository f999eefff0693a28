"""Real servers beside tests: PostgreSQL, Redis, webs, proxies, Prometheus, and how their programs are found."""
