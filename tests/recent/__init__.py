"""What changed of late, without any snapshot."""
