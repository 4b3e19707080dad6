"""Bytes in, messages out: framing, lines, server-sent events, JSON and JSON-RPC, without one socket.

May import `foundation` and msgspec. No I/O, no clock, no logger: whoever owns the bytes feeds
them in any cut, and gets the same messages, or one documented error after which the reader stays dead.
`codec` is the only caller of msgspec's decoders; `canonical` is the form that digests are taken over.
"""
