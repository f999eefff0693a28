"""What engines counted: taken in exactly once, added up over windows, priced, compared with what engines say."""
