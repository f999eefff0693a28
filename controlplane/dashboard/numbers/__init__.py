"""What the cache was worth: the overview of the fleet, and the home of customers."""
