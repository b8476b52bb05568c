"""The steps from each format of the database to the next."""
