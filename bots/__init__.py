"""The platforms and the program; the only place where everything meets."""
