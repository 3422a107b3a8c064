"""Sign-in at a certified provider that others wrote: npm's oidc-provider, over HTTP."""

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.fakes.oidc_relay import ProviderBrowser, RealProvider, honest
from tests.integration.hubs import Answer, HubProcess, WireAgent, one_task, wait_for
from tests.integration.visitors import Visitor
from tests.ports import free_port

PEOPLE = {"ada": {"groups": ["gpu-admins"]}, "otto": {"groups": ["gpu-ops", "/staff"]},
          "uma": {"groups": ["/staff"]}, "eve": {"groups": ["others"]},
          "tess": {"groups": ["/staff", "physics"]}}
FOREIGN = RSAKey.generate_key(2048)


@dataclass
class Site:
    hub: HubProcess
    provider: RealProvider

    def person(self, name: str) -> "Person":
        return Person(Visitor(self.hub), ProviderBrowser(name))


@dataclass
class Person:
    visitor: Visitor
    at_provider: ProviderBrowser

    def back(self, path: str = "/sign-in/oidc") -> str:
        """Sign in there, and return the URL that leads back to the hub, with a code."""
        answer = self.visitor.ask(path)
        assert answer.status == 303, answer.body
        return self.at_provider.until(self.visitor.hub.url, answer.headers["Location"])

    def entered(self, path: str = "/sign-in/oidc") -> Answer:
        return self.visitor.ask(self.back(path))

    def is_in(self) -> bool:
        return self.visitor.ask("/api/v1/me").status == 200


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, port, secret = tmp_path_factory.mktemp("site"), free_port(), secrets.token_urlsafe(32)
    url = f"http://127.0.0.1:{port}"
    client = {"client_id": "deck", "client_secret": secret,
              "redirect_uris": [f"{url}/sign-in/oidc/callback"],
              "post_logout_redirect_uris": [f"{url}/sign-in"],
              "backchannel_logout_uri": f"{url}/sign-in/oidc/logout",
              "backchannel_logout_session_required": True}
    (folder / "secret").write_text(secret)
    (folder / "secret").chmod(0o600)
    with RealProvider(folder, free_port(), client, PEOPLE) as provider:
        (folder / "hub.toml").write_text(
            f'[hub]\noidc_issuer = "{provider.issuer}"\noidc_client_id = "deck"\n'
            f'oidc_client_secret_file = "{folder}/secret"\n'
            'oidc_roles = "gpu-admins=admin, gpu-ops=operator:rack1, /staff=user"\n')
        with HubProcess(folder / "data", port, "--config", str(folder / "hub.toml")) as hub:
            yield Site(hub, provider)
            assert "Traceback" not in hub.log.read_text()


@pytest.fixture(autouse=True)
def _untampered(site: Site) -> Iterator[None]:
    yield
    site.provider.tamper = honest


@pytest.mark.parametrize(("name", "role", "nodes"), [
    ("ada", "admin", ["*"]), ("otto", "operator", ["rack1"]), ("uma", "user", ["*"])])
def test_groups_become_roles(site: Site, name: str, role: str, nodes: list[str]) -> None:
    person = site.person(name)
    assert person.entered().status in (200, 303)
    me = person.visitor.get("/api/v1/me")
    assert (me["name"], me["role"], me["groups"]) == (name, role, nodes)


def test_without_a_group_nobody_is_let_in(site: Site) -> None:
    eve = site.person("eve")
    answer = eve.entered()
    assert (answer.status, b"others" in answer.body) == (403, True)
    assert not eve.is_in()


def test_signing_out_ends_it_there_too(site: Site) -> None:
    uma = site.person("uma")
    uma.entered()
    forms = uma.at_provider.forms
    assert uma.entered().status in (200, 303)
    assert uma.at_provider.forms == forms, "the provider still knows her, and asks nothing"
    out = uma.visitor.ask("/sign-out", "POST", b"")
    assert out.status == 200
    assert not uma.is_in()
    back = uma.at_provider.until(uma.visitor.hub.url, out.body.decode())
    assert urlsplit(back).path == "/sign-in"
    forms = uma.at_provider.forms
    uma.entered()
    assert uma.at_provider.forms > forms, "it asks again who she is"


def test_the_provider_ends_sessions_here(site: Site) -> None:
    """A user who signs out at the provider, or in another application, is signed out here."""
    ada = site.person("ada")
    ada.entered()
    end = f"{site.provider.issuer}/session/end?" + urlencode({
        "client_id": "deck", "post_logout_redirect_uri": f"{site.hub.url}/sign-in"})
    ada.at_provider.until(site.hub.url, end)
    wait_for(lambda: not ada.is_in(), why="the session has ended")


def test_who_signs_in_again_is_fresh(site: Site) -> None:
    ada = site.person("ada")
    ada.entered()
    forms = ada.at_provider.forms
    assert ada.entered("/sign-in/oidc?fresh").status in (200, 303)
    assert ada.at_provider.forms > forms
    assert ada.visitor.get("/api/v1/me")["fresh_until"] > 0


def part(raw: str, at: int) -> dict[str, Any]:
    text = raw.split(".")[at]
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def forged(raw: str, how: str) -> str:
    """Return the token with an admin's claims: signed with another key, unsigned, or changed."""
    header, claims = part(raw, 0), part(raw, 1) | {"groups": ["gpu-admins"]}
    if how == "of another key":
        return jwt.encode(header, claims, FOREIGN, algorithms=[header["alg"]])
    if how == "unsigned":
        words = (json.dumps(header | {"alg": "none"}), json.dumps(claims))
        return ".".join(base64.urlsafe_b64encode(word.encode()).rstrip(b"=").decode()
                        for word in words) + "."
    head, _, signature = raw.split(".")
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{changed}.{signature}"


@pytest.mark.parametrize("how", ["of another key", "unsigned", "changed"])
def test_a_forged_token(site: Site, how: str) -> None:
    site.provider.tamper = lambda path, body: (
        body | {"id_token": forged(body["id_token"], how)} if path == "/token" else body)
    uma = site.person("uma")
    answer = uma.entered()
    assert (answer.status, b"signature" in answer.body) == (403, True), answer.body
    assert not uma.is_in()
    # The control: the same person, untampered.
    site.provider.tamper = honest
    uma.entered()
    assert uma.visitor.get("/api/v1/me")["role"] == "user"


def test_a_replayed_code(site: Site) -> None:
    uma = site.person("uma")
    back = uma.back()
    thief = site.person("eve")
    thief.visitor.ask("/sign-in/oidc")
    assert thief.visitor.ask(back).status == 403
    newer = uma.back()
    assert uma.visitor.ask(newer).status in (200, 303)
    assert uma.is_in()
    for person in (uma, thief, site.person("uma")):
        assert person.visitor.ask(newer).status == 403
    # With a state of its own, it is the provider that refuses the used code.
    started = uma.visitor.ask("/sign-in/oidc").headers["Location"]
    state = dict(pair.split("=", 1) for pair in urlsplit(started).query.split("&"))["state"]
    code = dict(pair.split("=", 1) for pair in urlsplit(newer).query.split("&"))["code"]
    answer = uma.visitor.ask("/sign-in/oidc/callback?" + urlencode(
        {"code": code, "state": state, "iss": site.provider.issuer}))
    assert (answer.status, b"invalid_grant" in answer.body) == (403, True), answer.body


def test_a_changed_issuer(site: Site, tmp_path: Path) -> None:
    """Refuse a changed issuer in an answer, and in the description that a starting hub reads."""
    uma = site.person("uma")
    back = uma.back()
    other = back.replace(urlencode({"iss": site.provider.issuer}),
                         urlencode({"iss": "https://evil.example.org"}))
    assert other != back
    answer = uma.visitor.ask(other)
    assert (answer.status, b"another provider" in answer.body) == (403, True)
    site.provider.tamper = lambda path, body: body | (
        {"issuer": "https://evil.example.org"} if path.startswith("/.well-known") else {})
    with HubProcess(tmp_path / "data", 0, "--oidc-issuer", site.provider.issuer,
                    "--oidc-client-id", "deck", "--oidc-roles", "a=user") as hub:
        refusal = Visitor(hub).ask("/sign-in/oidc")
        assert (refusal.status, b"to the letter" in refusal.body) == (403, True)


def test_a_group_of_the_provider_makes_a_team(site: Site) -> None:
    """The team has her tasks on the nodes, also after the hub has started again."""
    agent = WireAgent("teams")
    agent.connect(site.hub)
    agent.tick(one_task(user="tess"))
    body = json.dumps({"name": "science", "groups": ["physics"]}).encode()
    answer = site.hub.ask("/api/v1/teams", "POST", body=body, Content_Type="application/json")
    assert answer.status == 200, answer.body

    def team() -> str | None:
        members = site.hub.get("/api/v1/teams")["members"]
        return next((team for team, users in members.items() if "tess" in users), None)

    wait_for(lambda: team() == "", why="she is in no team")
    site.person("tess").entered()
    assert team() == "science"
    site.hub.kill()
    site.hub.start()
    agent.connect(site.hub)
    agent.tick(one_task(user="tess"))
    wait_for(lambda: team() == "science", why="it was stored")
    agent.close()
