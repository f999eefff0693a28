"""What every process of the data plane needs: its options, its log, its version, how it ends."""
