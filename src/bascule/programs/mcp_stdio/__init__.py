"""`bascule mcp`: an MCP server on stdin and stdout that makes its client one agent of this machine.

It carries messages; the tools run in the daemon. Standard library only, because it is started with every session of
every client and must answer `initialize` before the client loses patience. One thread: MCP lines on one side, one link
connection to the daemon on the other.

    tools         the tools and their sets, read from two lists that tools/gen_tools.py writes
    words         labels and advice: whose text a model reads, what to do after an error
    mcp           the protocol's two eras: requests in, answers out
    identity      which handle this process gets; no I/O
    link          the connection to the daemon: reconnects, repeats, gives up
    starter       starts the daemon when none runs
    serve         the loop
    command       options and environment

Another broker at BRIDGE_BROKER_URL, in threads:

    foreign       stands where `link` stands
    remote_mcp    another Bascule's /mcp
    section_five  the tools of the broker spec's section 6 over its section 5
    held_names    which handles the sessions of this user hold there
"""
