"""The limit for HTTP: an application that reads its request and answers as many bytes as the path asks for.

Served by uvicorn over the parser and the loop of Bascule's doors; `/4096` answers 4096 bytes.
"""

import uvicorn_program


async def app(scope, receive, send) -> None:
    while (await receive()).get("more_body"):
        continue
    body = b"x" * int(scope["path"][1:])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn_program.run(lambda _address: app)
