"""REST routes of imports. The service decides what is allowed."""

from dataclasses import dataclass

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, change
from .service import ImportService
from .views import ImportBatch, ImportView


@dataclass(eq=False, slots=True)
class ImportsApi:
    service: ImportService

    def import_recording(self, batch: ImportBatch) -> ImportView:
        return self.service.store(caller(), batch)


ROUTES = (
    Route("POST imports", ImportsApi.import_recording, "import_recording",
          change(Role.ADMIN, is_fresh=False),
          "Take some seconds of a recording into history, at their own times, as an imported Node. "
          "A second of a GPU that is there already is not taken twice. `gpudeck import` reads "
          "files and sends them here.", status=201),
)
