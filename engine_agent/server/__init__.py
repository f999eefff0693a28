"""One engine's HTTP APIs, OpenAI's and the sidecar's admin API, and their process. Start reading at `serve.py`."""
