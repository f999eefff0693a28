"""What stands beside an engine, or inside a gateway: it obeys the control plane, and tells it what happened."""
