"""GitOps: the state of organisations and policies as one document, what it would change, and carrying that out."""
