"""The experiments of the page "Five minutes": each runs on the live fleet, shows its measurements and undoes itself."""
