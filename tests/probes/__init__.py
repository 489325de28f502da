"""What is told beyond files."""
