"""The forms of tokens that nothing else looks like: found in small files, masked in what people write.

Each form is a prefix that names its kind and stays readable, and a secret part that does not. Only forms with an
unmistakable prefix, or a password where a password must stand, are in the table: a file is not to be sealed because
a long word stands in it.

Most files hold none. So a file is first searched for the anchors, a dozen expressions that begin with one letter
each, which the engine looks for with memchr: 150 MB/s for all of them together over the sources of CPython and
its packages, against 15 for the table and 1 for the table as one alternation (measured on 60 MB of files of up
to 64 KiB; `python -m tests.capture.measure_secrets` measures it again).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

SCAN_LIMIT = 64 << 10
"""Larger files are data: nobody keeps a token in them by hand."""

MASK = b"***"
# What documentation writes where a token belongs.
REAL = rb"(?![xX*.]{4}|[Yy]our|YOUR)"

# What stands between the marks of a key in armour, also as a string in JSON or in a program, up to the last mark.
ARMOUR = rb"(?:\\r|\\n|[\s\"',+>|A-Za-z0-9+/=:.()]|-(?!----))*(?:-----END [A-Z0-9 ]{0,40}-----)?"

# kind -> (what it is, prefix: its first letter or class must stand in the open, secret part)
TOKENS: dict[str, tuple[str, bytes, bytes]] = {
    "aws": ("AWS access key ids", rb"A(?:KIA|SIA|BIA|CCA)", rb"[A-Z2-7]{16}(?![A-Za-z0-9])(?<!EXAMPLE)"),
    "github": ("GitHub tokens", rb"g(?:h[pousr]_|ithub_pat_)", rb"\w{30,}"),
    "gitlab": (
        "GitLab tokens",
        rb"gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|wt|soat|ffct)-",
        rb"[\w-]{20,}(?:\.[\w.-]+)?",
    ),
    "slack": ("Slack tokens", rb"x(?:ox[abceoprs]|app)-", rb"[\w.-]{16,}"),
    "slack_webhook": ("Slack webhooks", rb"hooks\.slack\.com/(?:services|workflows|triggers)/", rb"[\w/+-]{20,}"),
    "discord_webhook": ("Discord webhooks", rb"discord(?:app)?\.com/api/webhooks/\d+/", rb"[\w-]{30,}"),
    "stripe": ("Stripe keys", rb"[sr]k_(?:live|test|prod)_", rb"[A-Za-z0-9]{16,}"),
    "stripe_webhook": ("Stripe webhook secrets", rb"whsec_", rb"[A-Za-z0-9+/=]{16,}"),
    "anthropic": ("Anthropic keys", rb"sk-ant-(?:[a-z]+\d\d-)?+", rb"[\w-]{20,}"),
    "openrouter": ("OpenRouter keys", rb"sk-or-(?:v\d-)?+", rb"[\w-]{20,}"),
    "openai": ("OpenAI keys", rb"sk-(?:proj|svcacct|admin|None)-", rb"[\w-]{20,}"),
    "sk": ("keys of the older form `sk-` and 32 or more letters and digits", rb"sk-", rb"[A-Za-z0-9]{32,}"),
    "google": ("Google API keys", rb"AIza", rb"[\w-]{30,}"),
    "google_client": ("Google client secrets", rb"GOCSPX-", rb"[\w-]{20,}"),
    "google_access": ("Google access tokens", rb"ya29\.", rb"[\w-]{28,}"),
    "google_refresh": ("Google refresh tokens", rb"1//0", rb"[\w-]{28,}"),
    "npm": ("npm tokens", rb"npm_", rb"[A-Za-z0-9]{36,}"),
    "pypi": ("PyPI tokens", rb"pypi-AgE", rb"[\w-]{50,}"),
    "rubygems": ("RubyGems keys", rb"rubygems_", rb"[0-9a-f]{48}"),
    "docker": ("Docker Hub tokens", rb"dckr_(?:pat|oat)_", rb"[\w-]{20,}"),
    "sendgrid": ("SendGrid keys", rb"SG\.", rb"[\w-]{16,32}\.[\w-]{16,64}"),
    "huggingface": ("Hugging Face tokens", rb"hf_", rb"[A-Za-z0-9]{30,}"),
    "groq": ("Groq keys", rb"gsk_", rb"[A-Za-z0-9]{40,}"),
    "xai": ("xAI keys", rb"xai-", rb"[A-Za-z0-9]{60,}"),
    "perplexity": ("Perplexity keys", rb"pplx-", rb"[A-Za-z0-9]{40,}"),
    "replicate": ("Replicate tokens", rb"r8_", rb"[A-Za-z0-9]{35,}"),
    "digitalocean": ("DigitalOcean tokens", rb"do[oprt]_v1_", rb"[0-9a-f]{64}"),
    "shopify": ("Shopify tokens", rb"shp(?:at|ca|pa|ss)_", rb"[0-9a-fA-F]{32}"),
    "vault": ("HashiCorp Vault tokens", rb"hv[sbr]\.", rb"[\w-]{24,}"),
    "databricks": ("Databricks tokens", rb"dapi", rb"[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    "atlassian": ("Atlassian tokens", rb"AT(?:ATT3|CTT3|BB)", rb"[\w=-]{28,}"),
    "linear": ("Linear keys", rb"lin_(?:api|oauth)_", rb"[A-Za-z0-9]{32,}"),
    "grafana": ("Grafana tokens", rb"gl(?:sa|c)_", rb"[\w+/=]{32,}"),
    "sentry": ("Sentry tokens", rb"sntry[us]_", rb"[\w+/=]{32,}"),
    "postman": ("Postman keys", rb"PMAK-", rb"[0-9a-f]{24}-[0-9a-f]{34}"),
    "pulumi": ("Pulumi tokens", rb"pul-", rb"[0-9a-f]{40}"),
    "doppler": ("Doppler tokens", rb"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]+\.)?", rb"[A-Za-z0-9]{40,}"),
    "newrelic": ("New Relic keys", rb"NR(?:AK|RA|II)-", rb"[\w-]{20,}"),
    "planetscale": ("PlanetScale secrets", rb"pscale_(?:tkn|pw|oauth)_", rb"[\w.=-]{32,}"),
    "supabase": ("Supabase tokens", rb"sb(?:p|_secret)_", rb"[\w-]{20,}"),
    "square": ("Square secrets", rb"sq0(?:atp|csp)-", rb"[\w-]{22,}"),
    "figma": ("Figma tokens", rb"fig[do]_", rb"[\w-]{30,}"),
    "tailscale": ("Tailscale keys", rb"tskey-[a-z]+-", rb"[\w-]{16,}"),
    "age": ("age secret keys", rb"AGE-SECRET-KEY-1", rb"[A-Z0-9]{58}"),
    "envhist": (
        "our own keys, as a file and as exported",
        rb"envhist-key(?:-w?[12]-[0-9a-f]{12}(?:[0-9a-f]{20})?-| [12](?:\\[rn]|\s){1,4})",
        rb"(?:\s{0,2}[0-9a-z]){103}[0-9a-z]*",
    ),
    "onepassword": ("1Password service accounts", rb"ops_eyJ", rb"[\w+/=-]{100,}"),
    "telegram": ("Telegram bot tokens", rb"\d\d{7,9}:AA", rb"[\w-]{32,34}(?![\w-])"),
    "azure": ("Azure account keys", rb"AccountKey=", rb"[A-Za-z0-9+/]{40,}={0,2}"),
    "azure_shared": ("Azure shared access keys", rb"SharedAccessKey=", rb"[A-Za-z0-9+/]{40,}={0,2}"),
    "git_header": (
        "credentials in git's `http.extraHeader`",
        rb"extra[Hh]eader[ \t]{0,4}[= ][ \t]{0,4}\"?(?i:authorization):[ \t]{0,4}(?i:basic|bearer|token)[ \t]{1,4}",
        rb"[\w+/=.~-]{16,}",
    ),
    "jwt": ("JSON web tokens", rb"eyJ", rb"[\w-]{10,2000}\.eyJ[\w-]{7,}\.[\w-]{10,}"),
    "private_key": (
        "private keys in PEM or PGP armour",
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        rb"(?:\\r|\\n|[\s\"',+>|])*(?:[A-Za-z0-9+/=]{16}|[A-Z][A-Za-z-]{3,15}: )" + ARMOUR,
    ),
}  # fmt: skip

URL_PASSWORD = "url_password"
URL_WHAT = "passwords in URLs (`scheme://user:password@host`)"
# A password that is a variable, or that everybody uses where a password must stand.
URL_VARIABLE = rb"[$%{*<\[(]|[^{}]*[{}]"
URL_USUAL = (
    rb"(?i)(?:pass|passwd|password|pwd|pw|p|secret|token|changeme|example|user|username|postgres|mysql|root|admin"
    rb"|test|guest|xx+|\.\.+|(?:my|your|the)?[_-]?(?:password|secret|token|api[_-]?key))"
)

# `PASSWORD=hunter2`, `--token=abc`, `"api_key": "abc"`: secret in a sentence that somebody wrote; in a program they
# are ordinary code, so that no file is sealed for them.
SETTING = (
    rb"(?i)((?:password|passwd|passphrase|pwd|secret|token|(?:api|access|secret|private|auth|encryption)[_-]?key)"
    rb"(?:=[\"']?|[\"']\s{0,4}:\s{0,4}[\"'])|authorization:\s{0,4}(?:bearer|basic|token)\s{1,4})"
    rb"(?![$%{<(\[=]|\*\*\*|true\b|false\b|none\b|null\b)[^\s\"'`;&|<>]{4,}"
)

# Each token of the table has one of these in it; a lookbehind is tried only where enough of a secret follows.
_ENDS_IN_UNDERSCORE = (
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ k_live_ k_test_ k_prod_ whsec_ npm_ rubygems_ dckr_pat_ dckr_oat_ hf_"
    " gsk_ r8_ dop_v1_ doo_v1_ dor_v1_ dot_v1_ shpat_ shpca_ shppa_ shpss_ lin_api_ lin_oauth_ glsa_ glc_"
    " sntrys_ sntryu_ pscale_tkn_ pscale_pw_ pscale_oauth_ sbp_ sb_secret_ figd_ figo_"
)
_ENDS_IN_DASH = (
    "glpat- gloas- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- glwt- glsoat- glffct- xoxa- xoxb- xoxc-"
    " xoxe- xoxo- xoxp- xoxr- xoxs- xapp- sk- sk-ant- sk-or- GOCSPX- pypi- xai- pplx- PMAK- pul- NRAK- NRRA- NRII-"
    " sq0atp- sq0csp- tskey-"
)
_ENDS_IN_DOT = "SG. ya29. hvs. hvb. hvr. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit."


def find_tokens(data: bytes) -> tuple[str, ...]:
    """The kinds of tokens that stand in some bytes, each once, in the order of the table."""
    if not has_anchor(data):
        return ()
    found = [kind for kind, form in _forms().items() if form.search(data) is not None]
    # The signs of a URL come by chance in three gigabytes of compressed bytes; a password that is text does not.
    binary = b"\0" in data
    if any(
        _is_real_password(match) and not (binary and _is_noise(match[0])) for match in _url().finditer(data)
    ):
        found.append(URL_PASSWORD)
    return tuple(found)


def mask_tokens(text: bytes) -> bytes:
    """The text with `***` for the secret part of every token, of a URL's password and of a named secret's value."""
    # To take out one token can bare another. Each round leaves fewer bytes that are no asterisk, so this ends.
    while (masked := _mask_once(text)) != text:
        text = masked
    return text


def has_anchor(data: bytes) -> bool:
    """Whether a token can stand in some bytes; False is certain, True is not."""
    return any(anchor(data) is not None for anchor in _anchors())


def _mask_once(text: bytes) -> bytes:
    if _may_hold_anchor(text) and has_anchor(text):
        for form in _forms().values():
            text = form.sub(_keep_prefix, text)
        text = _url().sub(_keep_user, text)
    # A setting has one of the two signs.
    return re.sub(SETTING, _keep_prefix, text) if b"=" in text or b":" in text else text


def _may_hold_anchor(text: bytes) -> bool:
    """The same question as `has_anchor`, for the few words that people write: without a pattern, and sooner yes."""
    longest = max(map(len, text.split()), default=0)
    return longest >= SHORTEST_ANCHOR or any(sign in text for sign in SHORT_SIGNS)


def _keep_prefix(match: re.Match[bytes]) -> bytes:
    return bytes(match[1]) + MASK


def _keep_user(match: re.Match[bytes]) -> bytes:
    return bytes(match[0]) if _is_variable(match[2]) else bytes(match[1]) + MASK


def _is_variable(password: bytes) -> bool:
    return re.match(URL_VARIABLE, password) is not None


def _is_real_password(match: re.Match[bytes]) -> bool:
    user = match[1].removeprefix(b"://").removesuffix(b":")
    password = match[2]
    return not (_is_variable(password) or re.fullmatch(URL_USUAL, password) or password == user)


def _is_noise(text: bytes) -> bool:
    try:
        return not text.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return True


def _form(prefix: bytes, secret: bytes) -> re.Pattern[bytes]:
    if prefix.startswith(b"-"):
        return re.compile(b"(" + prefix + b")" + secret)
    # A prefix is one only where a word begins: `task-` is not `sk-`. The test stands behind the first letter, so
    # that the engine can look for that letter.
    length = prefix.index(b"]") + 1 if prefix[:1] == b"[" else 2 if prefix[:1] == b"\\" else 1
    first, others = prefix[:length], prefix[length:]
    return re.compile(b"(" + first + rb"(?<![A-Za-z0-9]" + first + b")" + others + b")" + REAL + secret)


def _ending(letter: bytes, words: str) -> bytes:
    behind = b"|".join(b"(?<=" + re.escape(word.encode()) + b")" for word in words.split())
    return re.escape(letter) + rb"(?=[\w+/=.-]{16})(?:" + behind + b")"


# Compiled when they are first asked for, 6 ms together: few captures read a file, and few intents can hold a token.
@cache
def _forms() -> dict[str, re.Pattern[bytes]]:
    return {kind: _form(prefix, secret) for kind, (_, prefix, secret) in TOKENS.items()}


@cache
def _url() -> re.Pattern[bytes]:
    return re.compile(rb"(://[^\s/:@?#\"'<>`\\]{0,256}:)([^\s/?#\"'<>`\\]{1,512})(?=@)")


@cache
def _anchors() -> tuple[Callable[[bytes], re.Match[bytes] | None], ...]:
    return tuple(re.compile(anchor).search for anchor in ANCHORS)


ANCHORS = (
    _ending(b"_", _ENDS_IN_UNDERSCORE),
    _ending(b"-", _ENDS_IN_DASH),
    _ending(b".", _ENDS_IN_DOT),
    rb"A[KSBC][IC]A[A-Z2-7]{16}|AIza[\w-]{28}|AT(?:[AC]TT3|BB)[\w=-]{28}|AGE-SECRET-KEY-1",
    rb"1//0[\w-]{28}",
    rb"envhist-key(?:[- ][12]|-w1)",
    rb"dapi[0-9a-f]{32}",
    rb":AA[\w-]{32}",
    rb"Key=[A-Za-z0-9+/]{40}",
    rb"eyJ[\w+/=-]{10}",
    rb"PRIVATE KEY",
    rb"xtra[Hh]eader[ \t]{0,4}[= ]",
    rb"hooks\.slack\.com/",
    rb"/api/webhooks/\d",
    rb"://[^\s/:@?#\"'<>`\\]{0,256}:[^\s/?#\"'<>`\\]{1,512}@",
)

# What an anchor finds is one word of so many letters at least, or has one of these in it.
SHORTEST_ANCHOR = 16
SHORT_SIGNS = (b"envhist-key", b"eyJ", b"PRIVATE KEY", b"eader", b"/api/webhooks/", b"://")
