"""What facts mean. Pure: nothing here asks a machine, a database or a clock."""
