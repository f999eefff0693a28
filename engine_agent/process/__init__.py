"""What every process of the data plane needs: options, its state folder, its log, its version, how it ends."""
