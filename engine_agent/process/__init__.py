"""Options, state folder, logs, version and exits of the data plane's processes."""
