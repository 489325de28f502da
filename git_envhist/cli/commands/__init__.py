"""One module per command: parse its words, call the API, and pass the result to a view."""
