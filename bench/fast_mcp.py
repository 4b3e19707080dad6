"""The same with fastmcp, which many servers are written with."""

from fastmcp import FastMCP

server = FastMCP("bare")


@server.tool
def send(text: str) -> str:
    """Say it back."""
    return text


if __name__ == "__main__":
    server.run("stdio", show_banner=False)
