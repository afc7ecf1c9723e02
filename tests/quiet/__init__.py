"""What is a promise in seconds: measured, and so run by itself."""
