"""What the REST API takes and gives, a module for each subject."""
