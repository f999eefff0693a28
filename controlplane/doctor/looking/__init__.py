"""Where facts come from: each module asks one kind of thing, and leaves what it means to `judging`."""
