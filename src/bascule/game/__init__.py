"""The game bridge: games that run, what agents call in them, what happens in them.

`games` is the whole; a `Game` is one of them with its launch, its link and its calls. Sessions are sans-I/O
(`gabp.bridge_session`); processes, sockets and files are behind `ports`.
"""
