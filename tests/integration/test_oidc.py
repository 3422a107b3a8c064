"""Sign-in at the site's provider, over HTTP: groups become roles, and lies are refused."""

import json
import secrets
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc.jwk import OctKey, RSAKey

from tests.fakes.oidc import Claims, SiteProvider
from tests.integration.hubs import (
    Answer,
    HubProcess,
    WireAgent,
    _NoRedirect,
    one_task,
    wait_for,
)
from tests.integration.visitors import Visitor, add_person

ROLES = "gpu-admins=admin, gpu-ops=operator:rack1+rack2, /staff=user, guests=viewer:lab"
opener = urllib.request.build_opener(_NoRedirect)


@pytest.fixture(name="site", scope="module")
def _site() -> Iterator[SiteProvider]:
    with SiteProvider("deck", secrets.token_urlsafe(16)) as site:
        yield site


@pytest.fixture(name="hub", scope="module")
def _hub(site: SiteProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    secret = folder / "secret"
    secret.write_text(site.client_secret)
    secret.chmod(0o600)
    settings = folder / "hub.toml"
    settings.write_text(f'[hub]\noidc_issuer = "{site.issuer}"\noidc_client_id = "deck"\n'
                        f'oidc_client_secret_file = "{secret}"\noidc_roles = "{ROLES}"\n')
    with HubProcess(folder / "data", 0, "--config", str(settings)) as hub:
        add_person(hub, "root", "admin")
        yield hub
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture(autouse=True)
def _honest(site: SiteProvider) -> Iterator[None]:
    yield
    site.spoil, site.signs_with, site.algorithm, site.says = (lambda claims: claims), site.key, (
        "RS256"), {}


def at_provider(url: str) -> str:
    """Return where the provider sends the browser back: with a code."""
    try:
        opener.open(url, timeout=20)
    except urllib.error.HTTPError as answer:
        with answer:
            return str(answer.headers["Location"])
    raise AssertionError("the provider sends nobody back")


def begin(visitor: Visitor, path: str = "/sign-in/oidc") -> str:
    answer = visitor.ask(path)
    assert answer.status == 303, answer.body
    return answer.headers["Location"]


def entered(visitor: Visitor, **person: Any) -> Answer:
    set_person(visitor, **person)
    return visitor.ask(at_provider(begin(visitor)))


def set_person(visitor: Visitor, **person: Any) -> None:
    """Set the person whom the test's provider signs in."""
    PROVIDERS[visitor.hub.url].person = {"sub": f"id-{person['preferred_username']}", **person}


PROVIDERS: dict[str, SiteProvider] = {}


@pytest.fixture(name="visitor")
def _visitor(hub: HubProcess, site: SiteProvider) -> Visitor:
    PROVIDERS[hub.url] = site
    return Visitor(hub)


@pytest.mark.parametrize(("groups", "role", "nodes"), [
    (["gpu-ops", "/staff", "other"], "operator", ["rack1", "rack2"]),
    (["gpu-admins", "guests"], "admin", ["*"]), ("/staff", "user", ["*"]),
    (["guests"], "viewer", ["lab"])])
def test_groups_become_a_role_and_its_nodes_alone(
        visitor: Visitor, groups: Any, role: str, nodes: list[str]) -> None:
    name = f"u{secrets.token_hex(3)}"
    answer = entered(visitor, preferred_username=name.upper(), groups=groups)
    assert answer.status in (200, 303), answer.body
    me = visitor.get("/api/v1/me")
    assert (me["name"], me["role"], me["groups"]) == (name, role, nodes)


def test_a_group_that_is_left_takes_its_role_with_it(visitor: Visitor) -> None:
    person: Claims = {"preferred_username": "ines", "groups": ["gpu-ops"]}
    entered(visitor, **person)
    later = Visitor(visitor.hub)
    entered(later, **person | {"groups": ["guests"]})
    assert later.get("/api/v1/me")["role"] == "viewer"
    assert visitor.ask("/api/v1/me").status == 401  # the older session had more
    answer = entered(Visitor(visitor.hub), **person | {"groups": ["others"]})
    assert answer.status == 403
    assert b"others" in answer.body
    assert later.ask("/api/v1/me").status == 401, "what she opened before had a role"


def test_somebody_without_a_role_any_more_leaves_her_team(visitor: Visitor) -> None:
    hub, name = visitor.hub, f"t{secrets.token_hex(3)}"
    agent = WireAgent("teams-left")
    agent.connect(hub)
    agent.tick(one_task(user=name))
    body = json.dumps({"name": "optics", "groups": ["lasers"]}).encode()
    answer = hub.ask("/api/v1/teams", "POST", body=body, Content_Type="application/json")
    assert answer.status == 200, answer.body

    def team() -> str | None:
        members = hub.get("/api/v1/teams")["members"]
        return next((team for team, users in members.items() if name in users), None)

    entered(visitor, preferred_username=name, groups=["guests", "lasers"])
    wait_for(lambda: team() == "optics", why="the provider says so")
    assert entered(Visitor(hub), preferred_username=name, groups=["others"]).status == 403
    wait_for(lambda: team() == "", why="the provider says that she has left")
    agent.close()


def test_names_are_not_who_somebody_is(visitor: Visitor) -> None:
    """Neither a local user nor the name of somebody else is taken over."""
    assert entered(visitor, preferred_username="root", groups=["gpu-admins"]).status == 403
    entered(visitor, preferred_username="kim", sub="first", groups=["/staff"])
    other = Visitor(visitor.hub)
    assert entered(other, preferred_username="kim", sub="second", groups=["gpu-admins"]
                   ).status == 403
    renamed = Visitor(visitor.hub)
    entered(renamed, preferred_username="kimberly", sub="first", groups=["/staff"])
    assert renamed.get("/api/v1/me")["name"] == "kim"


FOREIGN = RSAKey.generate_key(2048)


def is_refused(visitor: Visitor, why: bytes) -> None:
    answer = entered(visitor, preferred_username=f"u{secrets.token_hex(3)}", groups=["gpu-admins"])
    assert answer.status == 403
    assert why in answer.body, answer.body
    assert visitor.ask("/api/v1/me").status == 401


@pytest.mark.parametrize(("lie", "why"), [
    ({"iss": "https://evil.example.org"}, b"was issued by"), ({"aud": "other"}, b"another appl"),
    ({"aud": ["deck", "other"]}, b"another appl"), ({"azp": "other"}, b"another appl"),
    ({"nonce": "x"}, b"not for this sign-in"), ({"exp": 1_700_000_000}, b"expired"),
    ({"iat": 4_000_000_000}, b"not valid yet"),
    ({"_claim_names": {"groups": "src1"}}, b"more groups")])
def test_claims_that_are_not_for_us(visitor: Visitor, site: SiteProvider, lie: Claims, why: bytes
                                    ) -> None:
    site.spoil = lambda claims: claims | lie
    is_refused(visitor, why)


def test_a_forged_signature(visitor: Visitor, site: SiteProvider) -> None:
    site.signs_with = FOREIGN
    is_refused(visitor, b"signature")
    # With the public key as a shared secret, which is public.
    site.signs_with, site.algorithm = OctKey.import_key(b"x" * 64), "HS256"
    is_refused(visitor, b"signature")


def test_a_code_serves_once_in_the_browser_that_asked(visitor: Visitor) -> None:
    set_person(visitor, preferred_username="noor", groups=["/staff"])
    back = at_provider(begin(visitor))
    stolen = Visitor(visitor.hub)
    begin(stolen)
    assert stolen.ask(back).status == 403
    assert visitor.ask(back).status == 403  # and it is over for both
    back = at_provider(begin(visitor))
    assert visitor.ask(back).status in (200, 303)
    assert Visitor(visitor.hub).ask(back).status == 403
    assert visitor.ask(back).status == 403


def test_an_answer_of_another_provider(visitor: Visitor) -> None:
    set_person(visitor, preferred_username="noor", groups=["/staff"])
    parts = urlsplit(at_provider(begin(visitor)))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    answer = visitor.ask(f"{parts.path}?{urlencode(query | {'iss': 'https://evil.example.org'})}")
    assert answer.status == 403
    assert b"another provider" in answer.body


def test_signing_out_ends_it_here_and_there(visitor: Visitor, site: SiteProvider) -> None:
    entered(visitor, preferred_username="sam", groups=["/staff"])
    answer = visitor.ask("/sign-out", "POST", b"")
    assert answer.status == 200
    where = urlsplit(answer.body.decode())
    assert answer.body.decode().startswith(f"{site.issuer}/end?")
    assert parse_qs(where.query)["post_logout_redirect_uri"] == [f"{visitor.hub.url}/sign-in"]
    assert parse_qs(where.query)["id_token_hint"]
    assert visitor.ask("/api/v1/me").status == 401


def logout(site: SiteProvider, visitor: Visitor, **claims: Any) -> int:
    events: Claims = {"http://schemas.openid.net/event/backchannel-logout": {}}
    token = site.signed(site.basics() | {"jti": secrets.token_hex(8), "events": events} | claims)
    return Visitor(visitor.hub).ask(
        "/sign-in/oidc/logout", "POST", urlencode({"logout_token": token}).encode(),
        Content_Type="application/x-www-form-urlencoded").status


def test_the_provider_ends_a_session(visitor: Visitor, site: SiteProvider) -> None:
    entered(visitor, preferred_username="toni", sub="t1", sid="s1", groups=["/staff"])
    assert logout(site, visitor, sub="t1", nonce="n") == 400
    assert logout(site, visitor, sub="t1", events={}) == 400
    assert logout(site, visitor, sub="somebody else") == 200
    assert visitor.ask("/api/v1/me").status == 200
    once = secrets.token_hex(8)
    assert logout(site, visitor, sid="s1", sub="t1", jti=once) == 200
    wait_for(lambda: visitor.ask("/api/v1/me").status == 401, why="signed out")
    assert logout(site, visitor, sid="s1", sub="t1", jti=once) == 400


def test_who_signs_in_again_is_fresh(visitor: Visitor, site: SiteProvider) -> None:
    an_hour_ago = int(time.time()) - 3_600
    entered(visitor, preferred_username="uma", groups=["gpu-admins"], auth_time=an_hour_ago)
    quota = json.dumps({"password": "x"}).encode()
    assert visitor.get("/api/v1/me")["fresh_until"] < time.time()
    assert visitor.ask("/api/v1/fresh", "POST", quota, Content_Type="application/json"
                       ).status == 409
    url = begin(visitor, "/sign-in/oidc?fresh")
    query = parse_qs(urlsplit(url).query)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])
    assert visitor.ask(at_provider(url)).status == 403  # it only says that it asked
    set_person(visitor, preferred_username="uma", groups=["gpu-admins"])
    assert visitor.ask(at_provider(begin(visitor, "/sign-in/oidc?fresh"))).status in (200, 303)
    assert visitor.get("/api/v1/me")["fresh_until"] > time.time()
    set_person(visitor, preferred_username="somebody", groups=["gpu-admins"])
    assert visitor.ask(at_provider(begin(visitor, "/sign-in/oidc?fresh"))).status == 403


def test_a_provider_that_is_another_one_now(site: SiteProvider, tmp_path: Path) -> None:
    """Refuse an issuer that is not the setting, to the letter."""
    site.says = {"issuer": site.issuer + "/"}
    with HubProcess(tmp_path / "data", 0, "--oidc-issuer", site.issuer, "--oidc-client-id", "deck",
                    "--oidc-roles", "a=user") as hub:
        answer = Visitor(hub).ask("/sign-in/oidc")
        assert answer.status == 403
        assert b"to the letter" in answer.body
        assert b"/sign-in/oidc" in Visitor(hub).ask("/sign-in").body
