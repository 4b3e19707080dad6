"""HTTP: plain ASGI built from the edges' tables, behind one admission, served by uvicorn.

Starlette's router costs half the throughput of these few lines (measured), and every route must pass the
same checks in the same order: so there is no framework between the socket and the table.
"""
