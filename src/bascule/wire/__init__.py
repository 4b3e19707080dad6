"""Bytes in, messages out: JSON-RPC, server-sent events, without one socket. Frames and JSON itself are `gabp`'s.

May import `foundation`, `gabp` and msgspec. No I/O, no clock, no logger: the owner of the bytes feeds
them in any cut, and gets the same messages, or one documented error after which the reader stays dead.
`gabp.codec` is the only caller of msgspec's decoders; `canonical` is the form that digests are taken over.
"""
