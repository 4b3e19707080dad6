"""What every answer of the console's door says to the browser, whatever is in its body."""

from bascule.surfaces.http.exchange import Headers

# Nothing but our own files runs, nothing is framed, nothing is sent elsewhere, and no text can become markup: Trusted
# Types without any policy refuse every sink. Pictures are blobs that a page made of an answer it was given.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; "
    b"img-src 'self' blob:; "
    # Else it would follow script-src, and a service worker outlives the page that made it.
    b"worker-src 'none'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Headers = [
    (b"content-security-policy", _POLICY),
    # A page that opened us has no handle on our window, and no page may embed what we answer.
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"publickey-credentials-get=(self), publickey-credentials-create=(self)"),
]
