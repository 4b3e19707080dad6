"""An MCP server over stdio the usual way: the official SDK and one tool."""

from mcp.server import MCPServer

server = MCPServer("bare")


@server.tool()
def send(text: str) -> str:
    """Say it back."""
    return text


if __name__ == "__main__":
    server.run("stdio")
