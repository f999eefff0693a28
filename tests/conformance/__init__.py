"""What every backend has to do, over HTTP, as a gateway and a sidecar ask for it. The same file for all of them."""
