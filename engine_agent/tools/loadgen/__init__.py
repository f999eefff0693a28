"""`luminet bench`: send a workload to any OpenAI server and measure its response times. Start at `command.py`."""
