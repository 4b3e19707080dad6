"""The person's policy file and notifications on this machine."""
