"""What a gateway looks at so that it can say why prompts miss: a sample, as keyed marks, and never a text."""
