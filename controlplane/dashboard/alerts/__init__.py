"""Pages of the alerts and alert rules."""
