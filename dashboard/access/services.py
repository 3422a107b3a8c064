"""Composition of the services of access."""

from ..runtime.dispatcher import Dispatcher
from .account_admin import AccountAdmin
from .credentials import CredentialService
from .passwords import PasswordService
from .protocols import AccountState, AuditLog
from .service import AccountService
from .sessions import SessionService
from .sign_in_log import SignInLog


class AccessServices:
    def __init__(self, state: AccountState, passwords: PasswordService, audit: AuditLog,
                 events: Dispatcher) -> None:
        self.sign_ins = SignInLog(state)
        self.accounts = AccountService(state, self.sign_ins, events, audit)
        self.sessions = SessionService(state.sessions, self.accounts)
        self.admin = AccountAdmin(state.accounts, self.accounts, passwords, self.sign_ins)
        self.credentials = CredentialService(state, self.accounts, self.sessions, self.sign_ins,
                                             passwords, audit)
