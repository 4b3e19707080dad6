"""What lies beside a workspace and must stay as it is."""

SECRET = b"SECRET: nothing in the workspace says this"
