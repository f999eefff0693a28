"""Tags of the dashboard's templates."""
