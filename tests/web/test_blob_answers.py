"""An answer of bytes at each door: HTTP writes it as it is, JSON doors as base64, and no type that a page executes."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bascule.kernel.blob import INERT_TYPES, Blob
from bascule.kernel.rows import Http, Nothing, Reads
from bascule.surfaces.http.app import App
from bascule.surfaces.http.endpoints import Endpoint
from bascule.surfaces.http.exchange import encode_response
from bascule.surfaces.openapi import describe
from gabp import codec

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
PICTURE = Reads[Nothing, Blob]("test.picture", "Show a picture.", Http("GET", "/v1/picture"))


class Statuses:
    """As much of an `App` as writing an answer needs."""

    seen: ClassVar[list[int]] = []
    on_status = staticmethod(seen.append)


def test_over_http_the_bytes_are_the_body():
    (route,) = PICTURE.routes
    endpoint = Endpoint(route, None, page=None, mount=None, form=None, as_owner=False)
    response = App.response(SimpleNamespace(on_status=Statuses.on_status), endpoint, Blob("image/png", PNG))
    written = encode_response(response, close=False)
    head, _, body = written.partition(b"\r\n\r\n")
    assert body == PNG
    assert b"content-type: image/png\r\n" in head
    assert b"x-content-type-options: nosniff" in head


def test_in_json_they_are_base64_and_come_back_as_they_were():
    text = codec.encode(Blob("image/png", PNG))
    assert codec.decode(text) == {"contentType": "image/png", "base64": "iVBORw0KGgoA/w=="}
    assert codec.decode(text, Blob) == Blob("image/png", PNG)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "text/javascript", "image/png; x", ""])
def test_a_type_that_a_browser_executes_is_a_fault(kind: str):
    with pytest.raises(ValueError, match="no door serves"):
        Blob(kind, b"")


def test_openapi_names_the_types_and_no_struct():
    document: dict[str, Any] = describe((PICTURE,), PICTURE.routes)
    answer = document["paths"]["/v1/picture"]["get"]["responses"]["200"]
    assert set(answer["content"]) == INERT_TYPES
    assert all(kind["schema"]["format"] == "binary" for kind in answer["content"].values())
    assert "Blob" not in document["components"]["schemas"]
