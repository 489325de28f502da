"""The programs: parse, call the API, show."""
