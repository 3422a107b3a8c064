"""Parts of the audit log."""

from functools import partial

from ..access.policy import Actor
from ..access.protocols import AuditLog, SignInNotes
from ..composition import Capability, Core, Seam
from ..runtime.runner import TICK_S, Loop
from .api import ROUTES as ROUTES
from .api import AuditApi
from .file_copy import AuditCopy
from .recorder import AuditRecorder
from .sign_in_notes import SignInWriter
from .store import AuditStore
from .verify import AuditVerifier

SEES_NODE: Seam[[Actor, str], bool] = Seam("whether an actor sees a node")
HOST_OF: Seam[[str], str | None] = Seam("the host name of a node")


def build(core: Core) -> Capability:
    state, copy_path = core.state, core.settings.audit_copy
    store = state.store(AuditStore)
    copy = None if copy_path is None else AuditCopy(copy_path, store)
    audit = core.add(AuditRecorder(store, copy, core.events), AuditLog)
    core.add(SignInWriter(state), SignInNotes)
    verifier = AuditVerifier(partial(state.another, AuditStore), copy_path)
    sees_node, host_of = core.call(SEES_NODE), core.call(HOST_OF)
    return Capability(
        # Records of `gpudeck user` and other commands go into the copy, too.
        loops=(Loop("audit copy", lambda _now, _mono: audit.copy_or_log(), TICK_S,
                    is_vital=True),),
        apis=lambda: (AuditApi(audit, verifier, sees_node, host_of),),
        close=audit.close)
