"""`bascule mcp`: an MCP server on stdin and stdout that makes its client one agent of the house.

Standard library only, because it is started with every session of every client and must answer
`initialize` before the client loses patience. One thread: MCP lines on one side, one link connection to the
daemon on the other.

    tools      the table of tools, read from tools.json; written by tools/gen_tools.py from `protocols.tools`
    words      labels and advice: whose text a model reads, what to do after an error
    calls      what each tool does: generators that ask the daemon and return a result; no I/O
    resources  recent transactions, and who wants to hear of more; no I/O
    identity   which handle this process gets; no I/O
    link       the connection to the daemon: reconnects, repeats, expires
    over_http  the same messages over HTTP, for another broker at BRIDGE_BROKER_URL
    starter    starts the daemon when none runs
    mcp        the protocol's two eras: requests in, answers out
    serve      the loop
    command    options and environment
"""
