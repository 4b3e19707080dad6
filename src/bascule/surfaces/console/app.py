"""The console's door: static files, and the calls of its pages, decoded, called and encoded as at every other door."""

from typing import Any

from bascule.foundation.errors import BasculeError, NotFound, Unauthenticated
from bascule.kernel.call import BROWSER
from bascule.kernel.gate import Gate
from bascule.kernel.route import Route
from bascule.kernel.rows import WhoKind
from bascule.surfaces.console.admission import ConsoleAdmission
from bascule.surfaces.console.headers import HEADERS
from bascule.surfaces.console.static import LED_SHELL, PREFIX, SHELL, StaticFile, StaticFiles
from bascule.surfaces.fair_share import FairShare
from bascule.surfaces.http.app import App
from bascule.surfaces.http.endpoints import Endpoint
from bascule.surfaces.http.exchange import Request, Response, encode_lines
from bascule.surfaces.http.routes import RouteTable

DOOR = "console"


class ConsoleApp(App):
    """Routes of rows alone: what is mounted as an application of its own (/mcp) makes calls without their session, and
    so without the proofs that they need."""

    header_lines = encode_lines(HEADERS)

    def __init__(
        self,
        admission: ConsoleAdmission,
        routes: tuple[Route, ...],
        calls: Gate,
        turns: FairShare,
        *,
        files: StaticFiles,
        **more: Any,
    ) -> None:
        super().__init__(
            admission, RouteTable(routes), calls, turns, door=DOOR, pages={}, mounts={}, closes_refused=True, **more
        )
        self._console = admission
        self._files = files
        self._shown: dict[bytes, Endpoint] = {}

    def admit(self, request: Request) -> Response | None:
        if request.verb == "GET" and (request.path == SHELL or request.path.startswith(PREFIX)):
            try:
                request.endpoint = self._file(request)
            except Exception as error:  # noqa: BLE001 - see `refused`
                return self.refused(error)
            return None
        refusal = super().admit(request)
        # Of a page that has shown nothing not even the paths are known.
        if getattr(request, "principal", None) == BROWSER and (refusal is not None or not _is_for_browsers(request)):
            return self.refused(_nothing_shown())
        return refusal

    def _file(self, request: Request) -> Endpoint:
        path = request.path
        if path == SHELL:
            path = SHELL if self._console.admit_shell(request) else LED_SHELL
        else:
            self._console.admit_part(request)
        request.principal = BROWSER
        endpoint = self._shown.get(path)
        if endpoint is None:
            file = self._files.find(path)
            if file is None:
                raise NotFound("no such file of the console", hint="open it with `bascule console`")
            endpoint = self._shown[path] = _page(path, file)
        return endpoint


def _is_for_browsers(request: Request) -> bool:
    mounted = request.endpoint.mounted
    return mounted is not None and mounted.row.who.kind is WhoKind.BROWSER


def _page(path: bytes, file: StaticFile) -> Endpoint:
    route = Route("GET", path.decode(), "console.file")
    answer = (200, file.type, file.body)
    return Endpoint(route, None, page=lambda: answer, mount=None, form=None, as_owner=False)


def _nothing_shown() -> BasculeError:
    return Unauthenticated("this page has shown nothing yet", hint="pair it with `bascule console`, or sign in")
