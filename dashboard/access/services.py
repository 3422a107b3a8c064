"""Composition of the services of access."""

from ..runtime.dispatcher import Dispatcher
from ..state import HubState
from .account_admin import AccountAdmin
from .credentials import CredentialService
from .passwords import PasswordService
from .protocols import AuditLog, SignInNotes
from .service import AccountService
from .sessions import SessionService
from .sign_in_log import SignInLog
from .store import AccountsStore, SessionStore


class AccessServices:
    def __init__(self, state: HubState, note: SignInNotes, passwords: PasswordService,
                 audit: AuditLog, events: Dispatcher) -> None:
        store = state.store(AccountsStore)
        self.sign_ins = SignInLog(state.store(SessionStore), note)
        self.accounts = AccountService(state, self.sign_ins, events, audit)
        self.sessions = SessionService(state.store(SessionStore), self.accounts)
        self.admin = AccountAdmin(store, self.accounts, passwords, self.sign_ins)
        self.credentials = CredentialService(state, self.accounts, self.sessions, self.sign_ins,
                                             passwords, audit)
