"""The LDAP configuration of docs/oidc.md, with Debian's OpenLDAP and Apache: whom the directory
knows is signed in, and nobody is who they say they are."""

import base64
import re
import secrets
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

from tests.fakes.certificates import Authority
from tests.integration.hubs import REPOSITORY, HubProcess, wait_for
from tests.machine import required
from tests.ports import free_port

pytestmark = pytest.mark.soak
PAGE = (REPOSITORY / "docs/oidc.md").read_text()
[SITE] = re.findall(r"^```apache\n(.*?)^```$", PAGE, re.M | re.S)
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "auth_basic", "ldap",
           "authnz_ldap", "ssl", "proxy", "proxy_http", "headers", "socache_shmcb")
PASSWORD = secrets.token_hex(8)
DIRECTORY = """
dn: dc=example,dc=org
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups
""" + "".join(f"""
dn: uid={name},ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: {name}
cn: {name}
sn: {name}
userPassword: {PASSWORD}
""" for name in ("alice", "carol", "mallory")) + """
dn: cn=gpu,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: gpu
member: uid=alice,ou=people,dc=example,dc=org
member: uid=carol,ou=people,dc=example,dc=org
"""


@dataclass
class LdapSite:
    hub: HubProcess
    url: str
    authority: Authority

    def ask(self, path: str, user: str = "", password: str = PASSWORD, **headers: str
            ) -> "tuple[int, Message[str, str], str]":
        """Return status, headers and text; redirects are not followed."""
        if user:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        request = urllib.request.Request(self.url + path, headers={
            name.replace("_", "-"): value for name, value in headers.items()})
        context = ssl.create_default_context(cafile=self.authority.file)
        opener = urllib.request.build_opener(_NoRedirect,
                                             urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def signed_in(self, user: str, **headers: str) -> str:
        """Return what the hub says of somebody who signs in."""
        status, fields, text = self.ask("/sign-in", user, **headers)
        assert status == 303, text
        cookie = "; ".join(line.partition(";")[0] for line in fields.get_all("Set-Cookie") or ())
        return self.ask("/api/v1/me", user, Cookie=cookie, **headers)[2]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def a_directory(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    program, fill = required("slapd"), required("slapadd")
    (folder / "ldap").mkdir()
    (folder / "slapd.conf").write_text("\n".join([
        *(f"include /etc/ldap/schema/{name}.schema" for name in (
            "core", "cosine", "inetorgperson")),
        f"pidfile {folder}/slapd.pid", "modulepath /usr/lib/ldap", "moduleload back_mdb",
        "database mdb", 'suffix "dc=example,dc=org"', f"directory {folder}/ldap", ""]))
    (folder / "people.ldif").write_text(DIRECTORY)
    subprocess.run([fill, "-f", folder / "slapd.conf", "-l", folder / "people.ldif"], check=True,
                   capture_output=True)
    with (folder / "slapd.log").open("wb") as log:
        return subprocess.Popen([program, "-f", folder / "slapd.conf", "-d", "0", "-h",
                                 f"ldap://127.0.0.1:{port}"], stdout=log, stderr=log)


def apache(folder: Path, port: int, own: int, directory: int, authority: Authority
           ) -> "subprocess.Popen[bytes]":
    """Run the page's configuration, with ports and files of this test."""
    program, pair = required("apache2"), authority.issue("deck")
    site = (SITE.replace("*:443", f"127.0.0.1:{port}").replace("127.0.0.1:8050", f"127.0.0.1:{own}")
            .replace("ldaps://ldap.example.org", f"ldap://127.0.0.1:{directory}")
            .replace("deck.example.org", "127.0.0.1")
            .replace("/etc/gpudeck/deck.pem", str(pair.cert))
            .replace("/etc/gpudeck/deck.key", str(pair.key)))
    (folder / "apache.conf").write_text("\n".join([
        *(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES),
        f"ServerRoot {folder}", f"PidFile {folder}/apache.pid", f"Listen 127.0.0.1:{port}",
        f"DefaultRuntimeDir {folder}", "ErrorLog /dev/stderr", "User www-data", "Group www-data",
        site]))
    with (folder / "apache.log").open("wb") as log:
        return subprocess.Popen([program, "-D", "FOREGROUND", "-f", folder / "apache.conf"],
                                stdout=log, stderr=log)


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapSite]:
    for name in ("slapd", "slapadd", "apache2"):
        required(name)  # before any of them runs
    folder = tmp_path_factory.mktemp("ldap")
    port, own, directory = free_port(), free_port(), free_port()
    authority, url = Authority(folder), f"https://127.0.0.1:{port}"
    with HubProcess(folder / "data", own, "--public-url", url, "--trusted-proxies", "127.0.0.1",
                    "--proxy-user-header", "X-Forwarded-User") as hub:
        subprocess.run([sys.executable, "-m", "gpudeck.cli.main", "user", "add", "alice", "--role",
                        "user", "--data", str(hub.folder)], cwd=REPOSITORY, check=True,
                       capture_output=True)
        programs = [a_directory(folder, directory),
                    apache(folder, port, own, directory, authority)]
        site = LdapSite(hub, url, authority)
        try:
            wait_for(lambda: is_up(site), why="Apache")
            yield site
        finally:
            for program in programs:
                program.terminate()
                program.wait(30)


def is_up(site: LdapSite) -> bool:
    try:
        return site.ask("/")[0] == 401
    except OSError:
        return False


def test_who_is_in_the_directory_is_signed_in(site: LdapSite) -> None:
    me = site.signed_in("alice")
    assert '"name":"alice"' in me.replace(" ", "")
    assert '"role":"user"' in me.replace(" ", "")


@pytest.mark.parametrize(("user", "password"), [
    ("", PASSWORD), ("alice", "guess"), ("mallory", PASSWORD), ("nobody", PASSWORD)],
    ids=["no name", "wrong password", "no member", "unknown"])
def test_nobody_else_gets_through(site: LdapSite, user: str, password: str) -> None:
    for path in ("/", "/sign-in", "/api/v1/me"):
        assert site.ask(path, user, password)[0] == 401, path
        assert site.ask(path, user, password, X_Forwarded_User="alice")[0] == 401, path
    # A browser's websocket is asked, too.
    assert site.ask("/socket.io/?EIO=4&transport=websocket", user, password, Origin=site.url,
                    X_Forwarded_User="alice")[0] == 401


def test_nobody_is_somebody_else_by_a_header(site: LdapSite) -> None:
    me = site.signed_in("alice", X_Forwarded_User="root", X_Forwarded_For="10.9.8.7")
    assert '"name":"alice"' in me.replace(" ", "")
    status, _, text = site.ask("/api/v1/me", Authorization="Bearer x", X_Forwarded_User="alice")
    assert (status, "alice" in text) == (401, False)


def test_whom_only_the_directory_knows_is_told_so(site: LdapSite) -> None:
    status, _, text = site.ask("/sign-in", "carol")
    assert status == 403
    assert "not known here. Ask an admin to add you." in text


def test_programs_and_agents_pass(site: LdapSite, tmp_path: Path) -> None:
    def nodes() -> tuple[int, str]:
        status, _, text = site.ask("/api/v1/nodes",
                                   Authorization=f"Bearer {site.hub.api_token}")
        return status, text

    assert nodes()[0] == 200
    (tmp_path / "token").write_text(site.hub.token().text)
    with subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli.main", "agent", "--hub", site.url, "--token-file",
             str(tmp_path / "token"), "--ca-file", str(site.authority.file), "--backend",
             "simulated", "--data", str(tmp_path / "agent")], cwd=REPOSITORY,
            stderr=subprocess.DEVNULL) as agent:
        try:
            wait_for(lambda: '"live"' in nodes()[1], why="live")
        finally:
            agent.terminate()
