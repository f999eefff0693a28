"""What a gateway knows of prompts and caches: whose caches hold how much of the prompt that somebody sends."""
