"""What the native bridge does on the machine: it looks for projects, processes and transcripts."""
