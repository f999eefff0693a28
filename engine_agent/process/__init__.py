"""What every process of the data plane needs: how it reads options, where it keeps state, its log, its version, how it ends."""
