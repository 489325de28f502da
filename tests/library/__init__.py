"""What a program of others has of this library."""
