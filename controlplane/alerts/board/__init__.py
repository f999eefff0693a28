"""What the dashboard for Grafana shows, as data: a module for each of its rows. How it is spelt is grafana.py's."""
