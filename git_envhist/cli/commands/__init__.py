"""One module for each command: parse its words, call the API, pass the result to a view."""
