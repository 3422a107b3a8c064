"""REST of imports. What is allowed, the service decides."""

from dataclasses import dataclass

from ..access.policy import Role
from ..access.requests import asker
from ..access.routes import Route, change
from .service import ImportService
from .views import ImportBatch, ImportView


@dataclass(eq=False, slots=True)
class ImportsApi:
    service: ImportService

    def take(self, batch: ImportBatch) -> ImportView:
        return self.service.take(asker(), batch)


ROUTES = (
    Route("POST imports", ImportsApi.take, "import_recording",
          change(Role.ADMIN, is_fresh=False),
          "Take some seconds of a recording into history, at their own times, as an imported Node. "
          "A second of a GPU that is there already is not taken twice. `gpudeck import` reads "
          "files and sends them here.", status=201),
)
