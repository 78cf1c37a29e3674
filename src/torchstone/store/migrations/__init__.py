"""The steps from an empty database to the newest tables; each one is applied once, in order."""
