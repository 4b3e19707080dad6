"""Paths to methods: names, the rest of a path, and a slash at its end."""

import pytest

from bascule.foundation.errors import InvalidRequest, MethodNotAllowed, NotFound
from bascule.kernel.route import Route
from bascule.surfaces.http.routes import MAX_PATH_BYTES, RouteTable

TABLE = RouteTable(
    (
        Route("GET", "/things", "things.list"),
        Route("GET", "/things/{id}", "things.show"),
        Route("GET", "/things/{id}/files", "files.list"),
        Route("GET", "/things/{id}/files/{path...}/", "files.list"),
        Route("GET", "/things/{id}/files/{path...}", "files.read"),
        Route("PUT", "/things/{id}/files/{path...}", "files.write"),
    )
)


@pytest.mark.parametrize(
    ("path", "method", "params"),
    [
        (b"/things/1", "things.show", {"id": "1"}),
        (b"/things/1/", "things.show", {"id": "1"}),
        (b"/things/1/files", "files.list", {"id": "1"}),
        (b"/things/1/files/", "files.list", {"id": "1"}),
        (b"/things/1/files/a", "files.read", {"id": "1", "path": "a"}),
        (b"/things/1/files/a/b/c.txt", "files.read", {"id": "1", "path": "a/b/c.txt"}),
        (b"/things/1/files/a/b/", "files.list", {"id": "1", "path": "a/b"}),
        (b"/things/1/files/gr%C3%BCn/%20x", "files.read", {"id": "1", "path": "grün/ x"}),
        # What such a path means is for the method to judge, not for the table to tidy.
        (b"/things/1/files/../../etc", "files.read", {"id": "1", "path": "../../etc"}),
        (b"/things/1/files/%2e%2e/x", "files.read", {"id": "1", "path": "../x"}),
        (b"/things/1/files/a//b", "files.read", {"id": "1", "path": "a//b"}),
        (b"/things/1/files/{...}", "files.read", {"id": "1", "path": "{...}"}),
        (b"/things/{}", "things.show", {"id": "{}"}),
    ],
)
def test_a_path_finds_its_method_and_names(path, method, params):
    found = TABLE.find("GET", path)
    assert (found.route.method, found.params) == (method, params)


@pytest.mark.parametrize("path", [b"/", b"/other", b"/things/1/other", b"/{}", b"/{...}", b"/" + b"x" * MAX_PATH_BYTES])
def test_a_path_of_no_route_is_not_found(path):
    with pytest.raises(NotFound):
        TABLE.find("GET", path)


def test_a_verb_that_is_not_served_is_told_those_that_are():
    with pytest.raises(MethodNotAllowed, match="DELETE") as refused:
        TABLE.find("DELETE", b"/things/1/files/a/b")
    assert refused.value.details == {"allow": "GET, PUT"}


def test_what_is_not_utf8_behind_its_percent_signs_is_refused():
    with pytest.raises(InvalidRequest, match="UTF-8"):
        TABLE.find("GET", b"/things/1/files/%ff")
