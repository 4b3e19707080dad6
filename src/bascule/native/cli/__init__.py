"""Commands of the native bridge."""
