"""How calls come in: HTTP, link and MCP, each derived from the rows of the bridges.

    http/       HTTP and server-sent events, with the checks before any call
    link        framed JSON-RPC on `link.sock`, for the Python client and `bascule mcp`
    mcp/        `/mcp`, and the tools that agents see
    openapi     the description of the HTTP surface
    fair_share  nobody keeps the event loop while others wait for it

May import what bridges declare, `kernel` and below. The fourth surface, the Python client, is `bascule.client`.
"""
