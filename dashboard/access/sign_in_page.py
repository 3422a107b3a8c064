"""The markup of the sign-in page: three forms and their words, without scripts."""

from dataclasses import dataclass
from html import escape

from .passwords import LEAST_LENGTH

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light"><title>{title} · gpudeck</title>
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font"
type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
<link rel="stylesheet" href="/assets/css/tokens.css">
<link rel="stylesheet" href="/assets/css/deck.css">
<link rel="stylesheet" href="/assets/css/forms.css">
</head><body class="sign-in"><main>
<p class="brand"><img src="/assets/favicon.svg" alt="" width="28" height="28">gpudeck</p>
<h1>{title}</h1>
{lead}{problem}{form}{below}
</main></body></html>
"""
FORM = """<form method="post" action="{action}" class="form">
<input type="hidden" name="csrf" value="{csrf}">{fields}
<button type="submit" class="button first">{button}</button>
</form>"""
FIELD = """
<p class="field"><label for="{name}">{label}</label>
<input id="{name}" name="{name}" type="{kind}" autocomplete="{fill}" value="{value}"
 autocapitalize="none" spellcheck="false" maxlength="1024" required{more}>{hint}</p>"""
ONWARD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gpudeck</title>
<meta http-equiv="refresh" content="0;url={to}"></head>
<body><a href="{to}">Continue</a></body></html>"""

FORGOTTEN = """<details class="aside"><summary>No password, or forgotten?</summary>
<p>Ask an admin for a link: it works once and lets you set a new password. On the machine where
the hub runs, you can also create one:</p>
<p class="command"><code>gpudeck user link NAME --reset --data DIR</code></p></details>"""
NOBODY = """<p>This hub has no users yet. On the machine where it runs, create a link:</p>
<p class="command"><code>gpudeck link --data DIR</code></p>
<p>DIR is the hub's data folder. The first person to open the link becomes the
first admin; it works once, for ten minutes.</p>"""
FIRST = """<p>This hub has no users yet. Choose a name and a password: you become its first
admin, and add the others.</p>"""


@dataclass(frozen=True, slots=True)
class SignInForm:
    title: str
    action: str
    fields: tuple[str, ...]
    button: str
    lead: str = ""
    below: str = ""


SITE = """<p><a class="button first" href="/sign-in/oidc">Sign in with your site's account</a></p>
<p>Or with a user of this hub:</p>"""


def password_form(name: str = "", has_oidc: bool = False) -> SignInForm:
    """Return the form for name and password; the first field still to be filled gets the focus."""
    fields = (_field("name", "Name", "username", name, more="" if name else " autofocus"),
              _field("password", "Password", "current-password", kind="password",
                     more=" autofocus" if name else ""))
    return SignInForm("Sign in", "/sign-in", fields, "Sign in", SITE if has_oidc else "", FORGOTTEN)


def first_form(code: str, name: str = "") -> SignInForm:
    name_field = _field("name", "Name", "username", name, more=' autofocus pattern="[A-Za-z0-9].*"',
                        hint="Letters, digits and . _ @ + - as in a login name.")
    return SignInForm("Become the first admin", "/sign-in/first",
                      (_hidden(code), name_field, *_new_password()),
                      "Become the admin", FIRST)


def set_form(code: str, name: str) -> SignInForm:
    # Tells a password manager which user the password belongs to.
    name_field = _field("name", "Name", "username", name, more=" readonly")
    return SignInForm("Choose a password", "/sign-in/password",
                      (_hidden(code), name_field, *_new_password(" autofocus")), "Save and sign in")


def page(form: SignInForm | None, csrf: str, problem: str | None = None) -> str:
    """Return the sign-in page. `form` None: the hub has no users yet."""
    alert = "" if problem is None else f'<p class="problem" role="alert">{escape(problem)}</p>'
    if form is None:
        return PAGE.format(title="No users yet", lead=NOBODY, problem=alert, form="", below="")
    body = FORM.format(action=form.action, csrf=csrf, fields="".join(form.fields),
                       button=form.button)
    return PAGE.format(title=form.title, lead=form.lead, problem=alert, form=body, below=form.below)


def _field(name: str, label: str, fill: str, value: str = "", kind: str = "text", more: str = "",
           hint: str = "") -> str:
    if hint:
        more += f' aria-describedby="{name}-hint"'
        hint = f'\n<small id="{name}-hint">{hint}</small>'
    return FIELD.format(name=name, label=label, kind=kind, fill=fill, value=escape(value[:64]),
                        more=more, hint=hint)


def _new_password(more: str = "") -> tuple[str, str]:
    length = f' minlength="{LEAST_LENGTH}"'
    return (_field("password", "Password", "new-password", kind="password", more=length + more,
                   hint=f"At least {LEAST_LENGTH} characters; three or four words work well."),
            _field("again", "Repeat the password", "new-password", kind="password", more=length))


def _hidden(code: str) -> str:
    return f'\n<input type="hidden" name="code" value="{escape(code[:128])}">'
