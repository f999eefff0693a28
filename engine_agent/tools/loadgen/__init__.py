"""`luminet bench`: asks any OpenAI server what a workload asks, and says how long the answers took."""
