"""One engine's HTTP APIs, OpenAI's and the admin API for its sidecar, and the process that serves both."""
