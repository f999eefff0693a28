"""The start pages of operators and customers, sign-in, and the TTL forms on the start pages."""
