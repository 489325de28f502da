"""Rules that hold for the source and the documents themselves."""
