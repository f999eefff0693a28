"""From a request's body to tokens: shared by engines and gateways, so that both mean the same by construction."""
