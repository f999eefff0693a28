"""The experiments of five minutes: each runs on this very fleet, shows what it measured, and undoes itself."""
