"""The HTTP faces of one engine, OpenAI's and its own for the sidecar, and the process that serves both."""
