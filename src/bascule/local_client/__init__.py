"""The client's side of the daemon's doors: HTTP over `http.sock` or to a broker on loopback, and link frames.

For the programs that start thousands of times a day: helpers, `bascule mcp`, bridgectl. Standard library only, and
only its cheap parts (no asyncio, http.client, typing, uuid, logging). May import `foundation.paths`, nothing else.

    exits   exit codes, and the errors that lead to them
    values  ids and JSON, as strict as the daemon's
    peers   whose program is at the other end
    tls     https, with the certificate verified
    http    one blocking request; server-sent events
    choice  which door, which token
    retry   how often to knock again
    spool   requests as files, for shells without sockets
    link    Content-Length frames on `link.sock`
"""
